package postgres

// Failpoint is called when the process reaches a named moment, so that a test can end the process there. nil = none.
type Failpoint func(point string)

// Reach reports a point.
func (f Failpoint) Reach(point string) {
	if f != nil {
		f(point)
	}
}
