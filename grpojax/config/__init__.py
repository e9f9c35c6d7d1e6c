"""What a config may say: keys and kinds, what keys ask of each other, flags."""
