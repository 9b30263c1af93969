local t = {}
while true do pcall(function() for i = #t + 1, 1e9 do t[i] = {} end end) end
