package server

// ResetWaits reports whether a reset of dev waits for a publish, or runs.
func (s *Server) ResetWaits() bool {
	if !s.publishing.TryRLock() {
		return true
	}
	s.publishing.RUnlock()
	return false
}
