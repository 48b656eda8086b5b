package node

import "postrider/internal/destination"

// Brokers are the clients of destinations that are brokers, by their type.
func Brokers() map[destination.Type]destination.Open {
	return map[destination.Type]destination.Open{}
}
