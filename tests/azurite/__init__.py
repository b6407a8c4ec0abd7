"""The same stories told to Azurite, Microsoft's emulator of Azure Storage, and to the core."""
