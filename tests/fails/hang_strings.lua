local s = ("x"):rep(100000):rep(50) while true do local t = s .. "y" end
