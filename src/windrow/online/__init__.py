"""Online: features of keys as of now, from records that uploads and streams keep up to date."""
