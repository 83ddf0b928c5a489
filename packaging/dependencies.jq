# What third-party crates are held to. Reads `cargo metadata`; prints a line for each that may not be here.
#
# What must stay true: a licence is an SPDX expression, where AND binds before OR; of old, `/` is OR.

# Permissive only. Unicode-3.0 is the licence of the Unicode tables in unicode-ident.
def permissive: ["Apache-2.0", "MIT", "BSD-2-Clause", "BSD-3-Clause", "ISC", "Unicode-3.0"];

# The lab draws flame graphs with inferno, unchanged (docs/adr/0014-the-lab.md). Tables of the terminal view hash with
# foldhash (docs/adr/0034-a-terminal-view.md).
def exceptions: {inferno: ["CDDL-1.0"], foldhash: ["Zlib"]};

# One asynchronous runtime for control, our own for the data path; one TLS; errors that say what is still safe.
def banned: ["openssl-sys", "async-std", "anyhow"];

def without_parentheses($allowed):
  split(" OR ") | any(split(" AND ") | all(. == "yes" or IN($allowed[])));

def allows($allowed):
  gsub(" */ *"; " OR ")
  | until(test("\\(") | not;
      sub("\\((?<inner>[^()]*)\\)"; if .inner | without_parentheses($allowed) then "yes" else "no" end))
  | without_parentheses($allowed);

.packages[]
| select(.source)
| (permissive + (exceptions[.name] // [])) as $allowed
| (if .source | startswith("registry+") | not then "\(.name): not from a registry: \(.source)" else empty end),
  (if .name | IN(banned[]) then "\(.name): banned, see packaging/dependencies.jq" else empty end),
  (if .license // "none" | allows($allowed) | not
   then "\(.name): licence \(.license // "none") is not one that packaging/dependencies.jq allows" else empty end)
