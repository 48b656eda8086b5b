package postgres

import (
	"crypto/rand"
	"encoding/binary"
	"sync"
	"time"

	"github.com/google/uuid"
)

const (
	// tickBits: an id has its time in milliseconds, and in 4,096ths of one where the milliseconds end.
	tickBits = 12
	// tickNanoseconds are one tick: 3,906 ticks fill a millisecond, and the remaining 190 are for ids of the same time.
	tickNanoseconds = 256
	// setBack is how far the clock may be behind the last id while ids continue from that id: it is corrected each second
	// by the database's time, which arrives a little late.
	setBack = int64(1000) << tickBits
)

// IDs creates the ids of events and dead letters: ascending UUIDs of version 7 with the database's time, because lists
// are in their order and the process's clock may be an hour off. The SQL function new_uuid creates the same.
type IDs struct {
	now func() time.Time

	mu   sync.Mutex
	last int64 // tick
}

// NewIDs returns a source of ids with the clock's time.
func NewIDs(clock *Clock) *IDs { return &IDs{now: clock.Now} }

// Make creates n ids, in ascending order.
func (m *IDs) Make(n int) []uuid.UUID {
	ids := make([]uuid.UUID, n)
	random := make([]byte, 8*n)
	_, _ = rand.Read(random) // never fails
	tick := m.take(int64(n))
	for i := range ids {
		id := ids[i][:]
		binary.BigEndian.PutUint64(id, uint64(tick>>tickBits)<<16|0x7000|uint64(tick&(1<<tickBits-1)))
		copy(id[8:], random[8*i:])
		id[8] = id[8]&0x3f | 0x80
		tick++
	}
	return ids
}

// One creates one id.
func (m *IDs) One() uuid.UUID { return m.Make(1)[0] }

// take reserves n ticks and returns the first. It follows a clock that was set back by more than a second: otherwise
// later events would not be found by their time.
func (m *IDs) take(n int64) (first int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.now()
	first = now.UnixMilli()<<tickBits + int64(now.Nanosecond()%int(time.Millisecond))/tickNanoseconds
	if first <= m.last && m.last-first < setBack {
		first = m.last + 1
	}
	m.last = first + n - 1
	return first
}
