package store

// New makes the parts that change the catalog. node is recorded with the steps of handshakes.
func newParts(cache *Cache, node string, fail Failpoint) (*Topics, *Subscriptions, *Holds, *Handshakes, *Policies) {
	handshakes := &Handshakes{cache.records, cache, node}
	return &Topics{cache.records, cache}, &Subscriptions{cache.records, cache, handshakes, fail},
		&Holds{cache.records, cache, fail}, handshakes, &Policies{cache}
}
