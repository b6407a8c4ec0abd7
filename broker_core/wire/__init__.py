"""What network front ends share, whatever broker family they speak for."""
