local x = 1 while true do x = math.sin(x) end
