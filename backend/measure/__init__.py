"""What repeated measurements of choices prove, and how the device was doing: without torch."""
