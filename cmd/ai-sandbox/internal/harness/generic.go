// Anything else.

package harness

// Generic is a command given after "--": it runs as it is, with no flags, no binds,
// no seeds and no credentials but those that the user names.
var Generic = Harness{}
