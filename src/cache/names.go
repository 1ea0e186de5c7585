package cache

// Names of the policies that decide while training runs, as configs and the simulator have them.
const (
	NameSieve     = "sieve"
	NamePrefetch  = "prefetch"
	NameLookahead = "lookahead"
)

// Dynamic reports whether a policy of that name decides step by step.
func Dynamic(name string) bool {
	return name == NameSieve || name == NamePrefetch || name == NameLookahead
}
