package query

import (
	"time"

	"github.com/google/uuid"
)

// Queue has the deliveries of an event subscription with pull delivery.
type Queue struct {
	// Available may be received now, Delayed later, and Locked have been received; up to 10,000 each.
	Available, Delayed, Locked int
	Next                       []NextEvent `db:"-"` // in the order in which they are received, at most 10
	Locks                      []LockLine  `db:"-"` // those that end first, at most 50
}

// NextEvent is an event that a consumer may receive.
type NextEvent struct {
	DeliveryID                  int64
	EventID, EventType, Subject string
	SystemID                    uuid.UUID
	PublishedAt                 time.Time
	Attempts                    int
	Body                        *string // nil if it is longer than 4 KiB
}

// LockLine is a consumer's lock.
type LockLine struct {
	DeliveryID              int64
	EventID                 *string // nil once the event's day was dropped
	SystemID                uuid.UUID
	Consumer                string
	DeliveryCount           int
	ReceivedAt, LockedUntil time.Time
}
