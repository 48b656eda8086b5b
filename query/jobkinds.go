package query

// JobKinds returns the kinds of jobs that a page can filter by.
func JobKinds() []string {
	return []string{"deliver", "batch", "route", "handshake", "export", "operation"}
}
