"""What a run takes before it starts: memory, hours, disk, on any device."""
