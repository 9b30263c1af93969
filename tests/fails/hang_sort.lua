local t = {} for i = 1, 1e5 do t[i] = i % 7 end while true do table.sort(t) end
