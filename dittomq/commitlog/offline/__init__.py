"""What is done with a store that lies on a disk, in use or not: nothing is locked and nothing is changed."""
