local s = ("a"):gsub("a", "b")
