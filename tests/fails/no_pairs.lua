for k in pairs({}) do end
