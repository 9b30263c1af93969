error(function() end)
