// Package brokers tests senders against brokers in the test's process. It is in the module e2e, so that the brokers are
// not the program's dependencies.
package brokers

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"postrider/internal/destination"
	"postrider/jobs/kafka"
	"postrider/policy"
)

const (
	topic     = "events"
	cloudUTF8 = "application/cloudevents+json; charset=utf-8"
)

var produces = []kmsg.Key{kmsg.Produce}

func cluster(t *testing.T, options ...kfake.Opt) *kfake.Cluster {
	t.Helper()
	c, err := kfake.NewCluster(append([]kfake.Opt{kfake.NumBrokers(1), kfake.SeedTopics(1, topic)}, options...)...)
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c
}

// open returns a Sender to the cluster's first broker, with settings that set changes.
func open(
	t *testing.T, c *kfake.Cluster, set func(*destination.Properties, *destination.ClientOptions),
) destination.Sender {
	t.Helper()
	p := &destination.Properties{Servers: c.ListenAddrs()[:1], Topic: topic}
	o := destination.ClientOptions{Dial: (&net.Dialer{}).DialContext, Name: "postrider", AckTimeout: 30 * time.Second}
	if set != nil {
		set(p, &o)
	}
	s, err := kafka.Open(p, o)
	require.NoError(t, err)
	t.Cleanup(s.Close)
	return s
}

func event(key, id string) *destination.Message {
	m := &destination.Message{
		ID: id, ContentType: cloudUTF8,
		Body:       []byte(`{"specversion":"1.0","id":"` + id + `","source":"/s","type":"T","data":{"n":1}}`),
		Attributes: []destination.Attribute{{Name: "aeg-Event-type", Value: "Notification"}},
	}
	if key != "" {
		m.Key = []byte(key)
	}
	return m
}

func requireStatus(t *testing.T, status int, r destination.Result) {
	t.Helper()
	require.Equal(t, policy.Result{Status: status}, r.Result, "%s: %v", r.Text, r.Cause)
}

// read returns the first records of the topic. Options are credentials.
func read(t *testing.T, c *kfake.Cluster, n int, options ...kgo.Opt) (records []*kgo.Record) {
	t.Helper()
	consumer, err := kgo.NewClient(append(options, kgo.SeedBrokers(c.ListenAddrs()...), kgo.ConsumeTopics(topic))...)
	require.NoError(t, err)
	defer consumer.Close()
	for len(records) < n {
		fetches := consumer.PollFetches(t.Context())
		require.NoError(t, fetches.Err())
		records = append(records, fetches.Records()...)
	}
	return records
}

// keyOf returns a key that other clients put into a partition of two.
func keyOf(partition int) string {
	hash := kgo.StickyKeyPartitioner(nil).ForTopic(topic)
	for i := 0; ; i++ {
		if key := fmt.Sprint("key", i); hash.Partition(&kgo.Record{Key: []byte(key)}, 2) == partition {
			return key
		}
	}
}

func TestKafkaRecords(t *testing.T) {
	t.Parallel()
	c := cluster(t, kfake.SeedTopics(2, topic))
	structured := open(t, c, nil)
	binary := open(t, c, func(p *destination.Properties, _ *destination.ClientOptions) {
		p.ContentMode = destination.Binary
	})
	requireStatus(t, 200, structured.Check(t.Context()))
	requireStatus(t, 200, structured.Send(t.Context(), event(keyOf(0), "a")))
	requireStatus(t, 200, binary.Send(t.Context(), event(keyOf(1), "b")))
	requireStatus(t, 200, structured.Send(t.Context(), event("", "c")))

	got := map[string]*kgo.Record{}
	for _, r := range read(t, c, 3) {
		key := string(r.Key)
		require.Equal(t, key == "", r.Key == nil)
		require.WithinDuration(t, time.Now(), r.Timestamp, time.Hour)
		got[key] = r
	}
	require.Len(t, got, 3)
	a, b := got[keyOf(0)], got[keyOf(1)]
	require.Equal(t, []int32{0, 1}, []int32{a.Partition, b.Partition}, "the partitions that other clients choose")
	require.Equal(t, string(event("", "a").Body), string(a.Value))
	attribute := kgo.RecordHeader{Key: "aeg-Event-type", Value: []byte("Notification")}
	require.Equal(t, []kgo.RecordHeader{{Key: "content-type", Value: []byte(cloudUTF8)}, attribute}, a.Headers)
	require.JSONEq(t, `{"n":1}`, string(b.Value))
	require.Equal(t, []kgo.RecordHeader{
		{Key: "content-type", Value: []byte("application/json")},
		{Key: "ce_id", Value: []byte("b")},
		{Key: "ce_source", Value: []byte("/s")},
		{Key: "ce_specversion", Value: []byte("1.0")},
		{Key: "ce_type", Value: []byte("T")},
		attribute,
	}, b.Headers)
}

func TestKafkaErrors(t *testing.T) {
	t.Parallel()
	c := cluster(t)
	s := open(t, c, nil)
	for _, tt := range []struct {
		err    *kerr.Error
		status int
	}{
		{kerr.UnknownTopicOrPartition, 404},
		{kerr.LeaderNotAvailable, 503},
		{kerr.NotLeaderForPartition, 503},
		{kerr.NotEnoughReplicas, 503},
		{kerr.KafkaStorageError, 503},
		{kerr.ThrottlingQuotaExceeded, 503},
		{kerr.MessageTooLarge, 413},
		{kerr.RecordListTooLarge, 413},
		{kerr.TopicAuthorizationFailed, 403},
		{kerr.ClusterAuthorizationFailed, 403},
		{kerr.InvalidTopicException, 400},
		{kerr.UnsupportedForMessageFormat, 400},
		{kerr.PolicyViolation, 400},
		{kerr.InvalidRecord, 400},
		{kerr.CorruptMessage, 400},
		{kerr.UnknownServerError, 500},
	} {
		fault := c.Fault(kfake.Fault{Keys: produces, Err: tt.err, Count: -1})
		r := s.Send(t.Context(), event("", "x"))
		fault.Remove()
		requireStatus(t, tt.status, r)
		require.Contains(t, r.Text, fmt.Sprintf("the broker responded %s (%d): ", tt.err.Message, tt.err.Code))
		hits := 1
		switch tt.err {
		case kerr.MessageTooLarge, kerr.RecordListTooLarge, kerr.InvalidRecord, kerr.CorruptMessage:
			hits = 2 // the record is sent once more, alone
		}
		require.Equal(t, hits, fault.Hits(), tt.err.Message)
		requireStatus(t, 200, s.Send(t.Context(), event("", "y")))
	}
}

// franz-go does not report these errors.
func TestKafkaNotConfirmed(t *testing.T) {
	t.Parallel()
	c := cluster(t)
	s := open(t, c, nil)
	for _, err := range []*kerr.Error{kerr.RequestTimedOut, kerr.NotEnoughReplicasAfterAppend} {
		fault := c.Fault(kfake.Fault{Keys: produces, Err: err, Count: -1})
		r := s.Send(t.Context(), event("", "x"))
		fault.Remove()
		requireStatus(t, 503, r)
		require.Contains(t, r.Text, "the broker requires another try")
		require.Equal(t, 1, fault.Hits(), "%s: it tries once", err.Message)
		requireStatus(t, 200, s.Send(t.Context(), event("", "y")))
	}
}

// hold stops the cluster's next produce request to a node (-1 = any). It returns when the request has arrived, and lets
// it go on by release.
func hold(c *kfake.Cluster, node int32) (arrived chan struct{}, release func()) {
	arrived, released := make(chan struct{}), make(chan struct{})
	held := false
	c.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
		if !held && (node < 0 || c.CurrentNode() == node) {
			held = true
			close(arrived)
			c.SleepControl(func() { <-released })
		}
		return nil, nil, false
	})
	return arrived, func() { close(released) }
}

func goSend(ctx context.Context, s destination.Sender, m *destination.Message) chan destination.Result {
	result := make(chan destination.Result, 1)
	go func() { result <- s.Send(ctx, m) }()
	return result
}

func TestKafkaWithoutResponse(t *testing.T) {
	t.Parallel()
	c := cluster(t)
	s := open(t, c, nil)
	arrived, release := hold(c, -1)
	defer release()
	ctx, cancel := context.WithCancel(t.Context())
	canceled := goSend(ctx, s, event("", "a"))
	<-arrived
	late, cancelLate := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancelLate()
	r := s.Send(late, event("", "b"))
	require.Equal(t, policy.Result{Err: policy.ErrorTimeout}, r.Result)
	require.Equal(t, "no response within 30 s", r.Text)
	require.ErrorIs(t, r.Cause, context.DeadlineExceeded)
	cancel()
	r = <-canceled
	require.Equal(t, policy.Result{Err: policy.ErrorCanceled}, r.Result)
	require.ErrorIs(t, r.Cause, context.Canceled)
	closed := goSend(t.Context(), s, event("", "c"))
	s.Close()
	require.Equal(t, policy.Result{Err: policy.ErrorCanceled}, (<-closed).Result)
}

// waiting reports that its caller waits for a result.
type waiting struct {
	context.Context //nolint:containedctx // it is one
	began           chan struct{}
}

func (w waiting) Done() <-chan struct{} {
	select {
	case w.began <- struct{}{}:
	default:
	}
	return w.Context.Done()
}

// A record that is rejected does not fail the others of its batch, nor does one whose attempt is canceled.
func TestKafkaBatch(t *testing.T) {
	t.Parallel()
	c := cluster(t)
	s := open(t, c, nil)
	requireStatus(t, 200, s.Send(t.Context(), event("k", "before")))
	arrived, release := hold(c, -1)
	first := goSend(t.Context(), s, event("k", "first"))
	<-arrived
	var results []chan destination.Result
	gone, leave := context.WithCancel(t.Context())
	for i := range 8 {
		ctx, id := t.Context(), fmt.Sprint("member", i)
		switch i {
		case 0:
			ctx, id = gone, "gone"
		case 3:
			id = "rejected"
		}
		began := make(chan struct{}, 1)
		results = append(results, goSend(waiting{ctx, began}, s, event("k", id)))
		<-began
	}
	leave()
	require.Equal(t, policy.ErrorCanceled, (<-results[0]).Err)
	rejects := c.Fault(kfake.Fault{Keys: produces, Err: kerr.MessageTooLarge, Count: -1, When: func(r kmsg.Request) bool {
		return bytes.Contains(r.(*kmsg.ProduceRequest).Topics[0].Partitions[0].Records, []byte("rejected"))
	}})
	release()
	requireStatus(t, 200, <-first)
	for i, result := range results {
		switch i {
		case 3:
			requireStatus(t, 413, <-result)
		case 0:
		default:
			requireStatus(t, 200, <-result)
		}
	}
	require.Equal(t, 2, rejects.Hits(), "the batch, and the record alone")
	var values []string
	for _, r := range read(t, c, 8) {
		values = append(values, string(r.Value))
	}
	require.Len(t, values, 8)
	require.Len(t, slices.Compact(slices.Sorted(slices.Values(values))), 8, "each once")
	require.NotContains(t, strings.Join(values, ""), "gone")
}

// largeEvent is a record that shares no request with small ones.
func largeEvent(key, id string) *destination.Message {
	m := event(key, id)
	m.Body = append(m.Body, bytes.Repeat([]byte(" "), 300<<10)...)
	return m
}

// A partition that does not respond delays no large record to another one, whether it has a small or a large record.
func TestKafkaStuckLarge(t *testing.T) {
	t.Parallel()
	for name, first := range map[string]*destination.Message{
		"small": event(keyOf(0), "stuck"), "large": largeEvent(keyOf(0), "stuck"),
	} {
		c := cluster(t, kfake.NumBrokers(2), kfake.SeedTopics(2, topic))
		require.NoError(t, c.MoveTopicPartition(topic, 0, 0))
		require.NoError(t, c.MoveTopicPartition(topic, 1, 1))
		s := open(t, c, nil)
		arrived, release := hold(c, 0)
		stuck := goSend(t.Context(), s, first)
		<-arrived
		requireStatus(t, 200, s.Send(t.Context(), largeEvent(keyOf(1), "large")))
		require.Empty(t, stuck, name)
		release()
		requireStatus(t, 200, <-stuck)
		require.Len(t, read(t, c, 2), 2, name)
	}
}

func TestKafkaStuckPartition(t *testing.T) {
	t.Parallel()
	c := cluster(t, kfake.NumBrokers(2), kfake.SeedTopics(2, topic))
	require.NoError(t, c.MoveTopicPartition(topic, 0, 0))
	require.NoError(t, c.MoveTopicPartition(topic, 1, 1))
	s := open(t, c, nil)
	arrived, release := hold(c, 0)
	stuck := goSend(t.Context(), s, event(keyOf(0), "stuck"))
	<-arrived
	for i := range 5 {
		requireStatus(t, 200, s.Send(t.Context(), event(keyOf(1), fmt.Sprint(i))))
	}
	require.Empty(t, stuck)
	release()
	requireStatus(t, 200, <-stuck)
}

func TestKafkaSize(t *testing.T) {
	t.Parallel()
	c := cluster(t)
	requests := c.Fault(kfake.Fault{Keys: produces, Observe: true, Count: -1})
	for _, kilobytes := range []int{0, 1} {
		limit := 1_048_588
		s := open(t, c, func(p *destination.Properties, _ *destination.ClientOptions) {
			if kilobytes > 0 {
				p.MaxMessageSizeInKilobytes, limit = &kilobytes, kilobytes*1024
			}
		})
		m := &destination.Message{ContentType: "application/json", Body: bytes.Repeat([]byte("1"), limit)}
		before := requests.Hits()
		r := s.Send(t.Context(), m)
		requireStatus(t, 413, r)
		var size, most int
		_, err := fmt.Sscanf(r.Text, "the record has %d bytes, and at most %d are allowed", &size, &most)
		require.NoError(t, err, r.Text)
		require.Equal(t, limit, most)
		require.Equal(t, before, requests.Hits(), "it is not sent")
		m.Body = m.Body[:limit-(size-limit)]
		for r = s.Send(t.Context(), m); r.Status == 200; r = s.Send(t.Context(), m) { // the lengths before it are shorter now
			m.Body = append(m.Body, '1')
		}
		require.Contains(t, r.Text, fmt.Sprintf("the record has %d bytes", limit+1))
		require.Greater(t, requests.Hits(), before)
	}
}

func TestKafkaUnknownTopic(t *testing.T) {
	t.Parallel()
	c := cluster(t, kfake.AllowAutoTopicCreation())
	s := open(t, c, func(p *destination.Properties, _ *destination.ClientOptions) { p.Topic = "other" })
	for range 2 {
		r := s.Send(t.Context(), event("", "a"))
		requireStatus(t, 404, r)
		require.Contains(t, r.Text, "UNKNOWN_TOPIC_OR_PARTITION (3)")
		requireStatus(t, 404, s.Check(t.Context()))
	}
	admin, err := kgo.NewClient(kgo.SeedBrokers(c.ListenAddrs()...))
	require.NoError(t, err)
	defer admin.Close()
	create, one := kmsg.NewPtrCreateTopicsRequest(), kmsg.NewCreateTopicsRequestTopic()
	one.Topic, one.NumPartitions, one.ReplicationFactor = "other", 1, 1
	create.Topics = append(create.Topics, one)
	_, err = create.RequestWith(t.Context(), admin)
	require.NoError(t, err)
	requireSent(t, s, policy.Result{Status: 404})
}

// requireSent sends until a record is stored: the client loads the partitions after a failure. Before, the results are
// as given.
func requireSent(t *testing.T, s destination.Sender, before policy.Result) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // less than the usual age of metadata
	defer cancel()
	for {
		r := s.Send(ctx, event("", "a"))
		if r.Status == 200 {
			return
		}
		require.Equal(t, before, r.Result, r.Text)
	}
}

func TestKafkaLeaderMoves(t *testing.T) {
	t.Parallel()
	c := cluster(t, kfake.NumBrokers(2), kfake.MaxVersions(kversion.V3_6_0())) // does not name the new leader
	s := open(t, c, nil)
	for _, node := range []int32{0, 1} {
		require.NoError(t, c.MoveTopicPartition(topic, 0, node))
		requireSent(t, s, policy.Result{Status: 503})
	}
}

func TestKafkaRestart(t *testing.T) {
	t.Parallel()
	c := cluster(t)
	s := open(t, c, nil)
	_, text, err := net.SplitHostPort(c.ListenAddrs()[0])
	require.NoError(t, err)
	port, err := net.LookupPort("tcp", text)
	require.NoError(t, err)
	requireStatus(t, 200, s.Send(t.Context(), event("", "a")))
	c.Close()
	for range 2 {
		r := s.Send(t.Context(), event("", "b"))
		require.Equal(t, policy.Result{Err: policy.ErrorSocket}, r.Result, r.Text)
		require.NotEmpty(t, r.Text)
	}
	cluster(t, kfake.Ports(port))
	requireSent(t, s, policy.Result{Err: policy.ErrorSocket})
}
