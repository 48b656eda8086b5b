package node

import (
	"postrider/internal/destination"
	"postrider/jobs/jetstream"
	"postrider/jobs/kafka"
)

// Brokers are the clients of destinations that are brokers, by their type.
func Brokers() map[destination.Type]destination.Open {
	return map[destination.Type]destination.Open{
		destination.Kafka: kafka.Open, destination.NatsJetStream: jetstream.Open,
	}
}
