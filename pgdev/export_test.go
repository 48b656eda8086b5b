package pgdev

// CurrentServer is the server of this test process, for tests that kill or restart it. Those must not be parallel.
func CurrentServer(tb TB) *Server {
	tb.Helper()
	return running(tb).server
}
