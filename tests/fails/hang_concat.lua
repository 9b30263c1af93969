local t = {} for i = 1, 1000 do t[i] = ("x"):rep(15000) end while true do pcall(table.concat, t) end
