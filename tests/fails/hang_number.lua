local s = ("9"):rep(100000) while true do local x = s + 1 end
