"""Export and import of configuration and messages in Vitrine's own lossless format."""
