package catalog

import "postrider/policy"

// NewSnapshot builds a catalog in memory, for tests of code that reads one. The event subscriptions of a topic keep
// their order.
func NewSnapshot(version int64, topics []*Topic, subs []*Subscription, policies map[string]*policy.Policy) *Snapshot {
	c := emptySnapshot()
	c.Version = version
	for _, t := range topics {
		c.topics[t.Name] = t
	}
	for _, s := range subs {
		c.subs[s.ID] = s
		c.subsByTopic[s.TopicID] = append(c.subsByTopic[s.TopicID], s)
	}
	if policies != nil {
		c.policies = policies
	}
	return c
}

// StaticCache is a cache that always has the same catalog, for tests.
func StaticCache(c *Snapshot) *Cache {
	cache := &Cache{}
	cache.snapshot.Store(c)
	return cache
}

// SealedColumns are the columns that a rotation goes through, as table.column.
func SealedColumns() (columns []string) {
	for _, table := range sealedTables {
		for _, column := range table.columns {
			columns = append(columns, table.name+"."+column)
		}
	}
	return columns
}
