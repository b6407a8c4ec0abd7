"""What Queue Storage decides (QS- rules): names, limits, when a message is invisible and why, what a receipt allows. Pure."""
