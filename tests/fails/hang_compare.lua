local s = ("x"):rep(100000):rep(50) local a, b = s .. "y", s .. "z" while true do local t = a < b end
