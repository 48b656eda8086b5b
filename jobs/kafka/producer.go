package kafka

import (
	"context"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"golang.org/x/sync/singleflight"
)

const (
	// batchHead is the size of a record batch without records; batchCRC is where its checksum is, after which the
	// checked bytes begin. Source: Apache Kafka, message format version 2.
	batchHead, batchCRC = 61, 17
	// maxGroupBytes bounds what one request has of several records. A larger record goes alone. Event Hubs closes the
	// connection at 1,046,528 bytes.
	maxGroupBytes = 256 * 1024
)

// producer sends records to the partitions of a topic. Each partition has one request in flight; records that arrive
// meanwhile share the next one. Each waiting record belongs to a caller, who removes it at its deadline, so the callers
// bound the memory, and a partition that does not respond stops no other one of another broker.
type producer struct {
	client  *kgo.Client
	topic   string
	timeout time.Duration
	hash    kgo.TopicPartitioner // as other clients choose the partition of a key
	loading singleflight.Group

	mu       sync.Mutex
	known    *topic
	loadedAt time.Time
	lanes    map[int32]*lane
	turn     int
}

// topic is what the brokers say of the topic.
type topic struct {
	id      [16]byte
	leaders []int32 // by partition; -1 = none
}

// lane is the queue of one partition.
type lane struct {
	partition int32
	waiting   []*pending
	sending   bool
}

// pending is a record that waits for its result.
type pending struct {
	record *kmsg.Record
	topic  *topic
	done   chan error // has room for one
}

func newProducer(client *kgo.Client, topic string, timeout time.Duration) *producer {
	return &producer{
		client: client, topic: topic, timeout: timeout, lanes: map[int32]*lane{},
		hash: kgo.StickyKeyPartitioner(nil).ForTopic(topic),
	}
}

// produce returns when the record is stored by all in-sync replicas, or cannot be, or ctx has ended.
func (s *producer) produce(ctx context.Context, r *kmsg.Record) error {
	t, err := s.partitions(ctx)
	if err != nil {
		return err
	}
	p := &pending{record: r, topic: t, done: make(chan error, 1)}
	l := s.add(p)
	if l == nil {
		s.forget(t)
		return kerr.LeaderNotAvailable
	}
	select {
	case err = <-p.done:
		return err
	case <-ctx.Done():
		s.remove(l, p)
		return ctx.Err()
	}
}

// partitions returns the topic's partitions, from memory if they are new enough.
func (s *producer) partitions(ctx context.Context) (*topic, error) {
	s.mu.Lock()
	known, age := s.known, time.Since(s.loadedAt)
	s.mu.Unlock()
	if known != nil && age < metadataMaxAge {
		return known, nil
	}
	select {
	case loaded := <-s.loading.DoChan("", s.load):
		t, _ := loaded.Val.(*topic)
		return t, loaded.Err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// load requests the topic's partitions. It serves several callers, so its deadline is its own.
func (s *producer) load() (any, error) {
	ctx, cancel := context.WithTimeout(context.Background(), s.timeout)
	defer cancel()
	req := kmsg.NewPtrMetadataRequest() // by default, it creates no topic
	asked := kmsg.NewMetadataRequestTopic()
	asked.Topic = &s.topic
	req.Topics = append(req.Topics, asked)
	resp, err := req.RequestWith(ctx, s.client)
	if err != nil {
		return nil, err
	}
	if len(resp.Topics) != 1 {
		return nil, kerr.UnknownTopicOrPartition
	}
	found := resp.Topics[0]
	if err := kerr.ErrorForCode(found.ErrorCode); err != nil {
		return nil, err
	}
	t := &topic{id: found.TopicID, leaders: slices.Repeat([]int32{-1}, len(found.Partitions))}
	for _, p := range found.Partitions {
		if int(p.Partition) < len(t.leaders) {
			t.leaders[p.Partition] = p.Leader
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.known, s.loadedAt = t, time.Now()
	return t, nil
}

// forget makes the next record load the partitions again, unless that has happened since t. nil = in any case.
func (s *producer) forget(t *topic) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t == nil || s.known == t {
		s.known = nil
	}
}

// add queues a record in the partition of its key, or in the one with the shortest queue. It returns nil if there is no
// leader to send it to.
func (s *producer) add(p *pending) *lane {
	s.mu.Lock()
	defer s.mu.Unlock()
	var best *lane
	n := len(p.topic.leaders)
	if p.record.Key != nil && n > 0 {
		partition := s.hash.Partition(&kgo.Record{Key: p.record.Key}, n)
		if p.topic.leaders[partition] >= 0 {
			best = s.lane(partition)
		}
	} else {
		s.turn++
		for i := range n {
			partition := (s.turn + i) % n
			if p.topic.leaders[partition] < 0 {
				continue
			}
			if l := s.lane(partition); best == nil || l.length() < best.length() {
				best = l
			}
		}
	}
	if best == nil {
		return nil
	}
	best.waiting = append(best.waiting, p)
	if !best.sending {
		best.sending = true
		go s.run(best)
	}
	return best
}

func (s *producer) lane(partition int) *lane {
	l := s.lanes[int32(partition)] //nolint:gosec // the number of a partition
	if l == nil {
		l = &lane{partition: int32(partition)} //nolint:gosec // the number of a partition
		s.lanes[l.partition] = l
	}
	return l
}

// length is how many requests and records are ahead of the next record.
func (l *lane) length() int {
	if l.sending {
		return len(l.waiting) + 1
	}
	return len(l.waiting)
}

func (s *producer) remove(l *lane, p *pending) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := slices.Index(l.waiting, p); i >= 0 {
		l.waiting = slices.Delete(l.waiting, i, i+1)
	}
}

// run sends what waits in a partition until nothing does.
func (s *producer) run(l *lane) {
	for {
		group := s.take(l)
		if len(group) == 0 {
			return
		}
		s.send(l.partition, group)
	}
}

// take removes the first records that fit into one request.
func (s *producer) take(l *lane) []*pending {
	s.mu.Lock()
	defer s.mu.Unlock()
	n, size := 0, batchHead
	for n < len(l.waiting) && l.waiting[n].topic == l.waiting[0].topic {
		size += encodedSize(l.waiting[n].record)
		if n > 0 && size > maxGroupBytes {
			break
		}
		n++
	}
	group := slices.Clone(l.waiting[:n])
	l.waiting = slices.Delete(l.waiting, 0, n)
	l.sending = n > 0
	return group
}

// send makes one produce request and reports its result to each record. If the broker rejects the whole batch because
// of one record, it has stored none of them, and the halves are sent separately.
func (s *producer) send(partition int32, group []*pending) {
	t := group[0].topic
	err := s.request(t, partition, group)
	if len(group) > 1 && (errors.Is(err, kerr.MessageTooLarge) || errors.Is(err, kerr.RecordListTooLarge) ||
		errors.Is(err, kerr.InvalidRecord)) {
		half := len(group) / 2
		s.send(partition, group[:half])
		s.send(partition, group[half:])
		return
	}
	if known, ok := errors.AsType[*kerr.Error](err); err != nil && (!ok || known.Retriable) {
		s.forget(t)
	}
	for _, p := range group {
		p.done <- err
	}
}

// request sends records to a partition's leader. Its context is not that of an attempt: franz-go closes the connection
// if that ends, and the broker's other requests would fail.
func (s *producer) request(t *topic, partition int32, group []*pending) error {
	req := kmsg.NewPtrProduceRequest()
	req.Acks, req.TimeoutMillis = -1, int32(s.timeout.Milliseconds()) //nolint:gosec // at most minutes
	to := kmsg.NewProduceRequestTopicPartition()
	to.Partition, to.Records = partition, encode(group, time.Now())
	of := kmsg.NewProduceRequestTopic()
	of.Topic, of.TopicID, of.Partitions = s.topic, t.id, append(of.Partitions, to)
	req.Topics = append(req.Topics, of)
	raw, err := s.client.Broker(int(t.leaders[partition])).Request(context.Background(), req)
	if err != nil {
		return err
	}
	resp, ok := raw.(*kmsg.ProduceResponse)
	if !ok || len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
		return errors.New("the broker's response does not have the partition")
	}
	got := resp.Topics[0].Partitions[0]
	if err = kerr.ErrorForCode(got.ErrorCode); err == nil {
		return nil
	}
	failed := &produceError{error: err, throttle: time.Duration(resp.ThrottleMillis) * time.Millisecond}
	if got.ErrorMessage != nil {
		failed.message = *got.ErrorMessage
	}
	return failed
}

// encodedSize is the size of a record as the only one of a batch; it has a few bytes more at a later position.
func encodedSize(r *kmsg.Record) int { return len(appendRecord(nil, r, 0)) }

func appendRecord(to []byte, r *kmsg.Record, position int32) []byte {
	own := *r
	own.OffsetDelta, own.Length = position, 0
	body := own.AppendTo(nil)[1:] // without the length 0
	return append(binary.AppendVarint(to, int64(len(body))), body...)
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// encode returns a record batch of version 2 without compression, with no producer id: the broker does not look for
// repeated records.
func encode(group []*pending, now time.Time) []byte {
	last := int32(len(group) - 1) //nolint:gosec // bounded by maxGroupBytes
	b := kmsg.RecordBatch{
		PartitionLeaderEpoch: -1, Magic: 2, LastOffsetDelta: last, NumRecords: last + 1, ProducerID: -1, ProducerEpoch: -1,
		FirstSequence: -1, FirstTimestamp: now.UnixMilli(), MaxTimestamp: now.UnixMilli(),
	}
	for i, p := range group {
		b.Records = appendRecord(b.Records, p.record, int32(i)) //nolint:gosec // bounded by maxGroupBytes
	}
	b.Length = int32(batchHead - 12 + len(b.Records)) //nolint:gosec // bounded by the size of a message
	raw := b.AppendTo(nil)
	binary.BigEndian.PutUint32(raw[batchCRC:], crc32.Checksum(raw[batchCRC+4:], castagnoli))
	return raw
}
