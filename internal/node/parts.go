package node

import (
	"postrider/internal/destination"
	"postrider/jobs/jetstream"
	"postrider/jobs/kafka"
	v1 "postrider/server/v1"
	"postrider/web"
)

// Brokers are the clients of destinations that are brokers, by their type.
func Brokers() map[destination.Type]destination.Open {
	return map[destination.Type]destination.Open{
		destination.Kafka: kafka.Open, destination.NatsJetStream: jetstream.Open,
	}
}

// API returns the parts of the REST API.
func (s *System) API() v1.Parts {
	return v1.Parts{
		DB: s.DB, Clock: s.Clock, Cache: s.Cache, Topics: s.Topics, Subscriptions: s.Subscriptions, Holds: s.Holds,
		Handshakes: s.Handshakes, Policies: s.Policies, Publisher: s.Publisher, Receiver: s.Receiver, Access: s.Access,
		Reader: s.Reader, Operator: s.Operator, Queries: s.Queries, SavedQueries: s.SavedQueries, Relays: s.Relays,
	}
}

// Dashboard returns the parts of the dashboard.
func (s *System) Dashboard() web.Parts {
	return web.Parts{
		DB: s.DB, Clock: s.Clock, Cache: s.Cache, Topics: s.Topics, Subscriptions: s.Subscriptions, Holds: s.Holds,
		Access: s.Access, Reader: s.Reader, Operator: s.Operator,
		Queries: s.Queries, SavedQueries: s.SavedQueries,
	}
}
