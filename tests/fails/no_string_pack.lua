string.pack("!16 j", 1)
