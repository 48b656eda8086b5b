package store

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
	// tickNanoseconds are counted as one: 3,906 of them fill a millisecond, and what is left is for those that come at once.
	tickNanoseconds = 256
	// setBack is how far behind the last id the clock may be and ids still go on from it. The database's time is read anew each second, and
	// comes a moment late.
	setBack = int64(1000) << tickBits
)

// ids makes the ids of events and of dead letters: UUIDs of version 7, of which each is behind the one before. Their time is that
// of the database and not of the process, whose clock may be an hour off: lists go in the order of ids, and what was published at a time is
// looked for by them. The SQL function new_uuid makes the same.
type ids struct {
	now func() time.Time

	mu   sync.Mutex
	last int64 // tick
}

// make makes so many, in their order.
func (m *ids) make(n int) []uuid.UUID {
	made := make([]uuid.UUID, n)
	random := make([]byte, 8*n)
	_, _ = rand.Read(random) // never fails
	tick := m.take(int64(n))
	for i := range made {
		id := made[i][:]
		binary.BigEndian.PutUint64(id, uint64(tick>>tickBits)<<16|0x7000|uint64(tick&(1<<tickBits-1)))
		copy(id[8:], random[8*i:])
		id[8] = id[8]&0x3f | 0x80
		tick++
	}
	return made
}

func (m *ids) one() uuid.UUID { return m.make(1)[0] }

// take takes so many ticks and answers the first of them. A clock that was set back by more than a moment is followed: else
// nothing that is published from now on would be found by its time.
func (m *ids) take(n int64) (first int64) {
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
