"""Who is it, and may they: keys, rules, tokens, origins.

`authenticator` is what the rest of the gateway talks to. It knows the API keys (`key`, `key_file`),
signs and checks the short-lived tokens made from them (`signer`), and answers with an
`identity` that carries `rules`. `origin` decides which browsers may come at all, `refused` counts
and logs who may not. `token_command` is `pushlane token`.
"""
