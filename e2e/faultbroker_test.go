package e2e

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	brokerTarget    = "events" // topic in Kafka, and subject in NATS
	kafkaPartitions = 4
	// natsVariable has the configuration of a NATS server that this program runs instead of the tests.
	natsVariable = "POSTRIDER_E2E_NATS"
)

// freeAddresses are addresses that a broker keeps when it starts again. Their ports are below those that connections
// take: one of these could have the port meanwhile.
func freeAddresses(t *testing.T, n int) (addresses []string) {
	t.Helper()
	for len(addresses) < n {
		listener, err := net.Listen("tcp", fmt.Sprint("127.0.0.1:", 10_000+rand.N(20_000)))
		if err == nil {
			defer listener.Close()
			addresses = append(addresses, listener.Addr().String())
		}
	}
	return addresses
}

// kafkaBroker is a cluster of two brokers in this process. Closing it cuts all connections: a produce request is stored
// without a response, or not at all.
type kafkaBroker struct {
	t         *testing.T
	dir       string
	addresses []string
	cluster   *kfake.Cluster
}

func newKafkaBroker(t *testing.T) *kafkaBroker {
	t.Helper()
	k := &kafkaBroker{t: t, dir: t.TempDir(), addresses: freeAddresses(t, 2)}
	k.start()
	t.Cleanup(func() { k.cluster.Close() })
	return k
}

// start starts the brokers with what they have stored.
func (k *kafkaBroker) start() {
	k.t.Helper()
	ports := make([]int, len(k.addresses))
	for i, address := range k.addresses {
		_, port, err := net.SplitHostPort(address)
		require.NoError(k.t, err)
		ports[i], err = strconv.Atoi(port)
		require.NoError(k.t, err)
	}
	eventually(k.t, "Kafka starts", func() bool {
		cluster, err := kfake.NewCluster(kfake.Ports(ports...), kfake.DataDir(k.dir),
			kfake.SeedTopics(kafkaPartitions, brokerTarget))
		if err == nil {
			k.cluster = cluster
		}
		return err == nil
	})
}

// each calls note with the value of every record.
func (k *kafkaBroker) each(note func(value []byte)) {
	k.t.Helper()
	consumer, err := kgo.NewClient(kgo.SeedBrokers(k.addresses...), kgo.ConsumeTopics(brokerTarget),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	require.NoError(k.t, err)
	defer consumer.Close()
	for left := map[int32]int64{}; len(left) < kafkaPartitions || sum(left) > 0; {
		fetches := consumer.PollFetches(k.t.Context())
		require.NoError(k.t, fetches.Err())
		fetches.EachRecord(func(r *kgo.Record) { note(r.Value) })
		fetches.EachPartition(func(p kgo.FetchTopicPartition) {
			if n := len(p.Records); n > 0 {
				left[p.Partition] = p.HighWatermark - p.Records[n-1].Offset - 1
			}
		})
	}
}

func sum(values map[int32]int64) (total int64) {
	for _, value := range values {
		total += value
	}
	return total
}

// natsCluster is a cluster of three processes. Its stream has a replica at each.
type natsCluster struct {
	t         *testing.T
	addresses []string
	configs   []string
	servers   []*process
	js        nats.JetStreamContext
}

func newNATSCluster(t *testing.T) *natsCluster {
	t.Helper()
	const size = 3
	addresses := freeAddresses(t, 2*size)
	n := &natsCluster{t: t, addresses: addresses[:size], servers: make([]*process, size)}
	for i, address := range n.addresses {
		n.configs = append(n.configs, fmt.Sprintf(`listen: %q
			server_name: s%d
			jetstream { store_dir: %q }
			cluster { name: c, listen: %q, routes: ["nats://%s"] }`,
			address, i, t.TempDir(), addresses[size+i], strings.Join(addresses[size:], `", "nats://`)))
		n.start(i)
	}
	return n
}

func (n *natsCluster) start(i int) {
	n.t.Helper()
	n.servers[i] = startProcess(n.t, append(ownEnvironment(), natsVariable+"="+n.configs[i]), os.Args[0])
}

// serveNATS is the process of a server.
func serveNATS(config string) int {
	options := &server.Options{NoSigs: true}
	err := options.ProcessConfigString(config)
	if err == nil {
		var s *server.Server
		if s, err = server.NewServer(options); err == nil {
			s.ConfigureLogger()
			s.Start()
			s.WaitForShutdown()
			err = errors.New("the server has stopped")
		}
	}
	fmt.Fprintln(os.Stderr, err)
	return 1
}

func (n *natsCluster) createStream() {
	n.t.Helper()
	client, err := nats.Connect(strings.Join(n.addresses, ","), nats.RetryOnFailedConnect(true), nats.MaxReconnects(-1),
		nats.ReconnectWait(pollTime))
	require.NoError(n.t, err)
	n.t.Cleanup(client.Close)
	n.js, err = client.JetStream(nats.MaxWait(time.Second))
	require.NoError(n.t, err)
	stream := &nats.StreamConfig{Name: "EVENTS", Subjects: []string{brokerTarget}, Replicas: len(n.servers)}
	eventually(n.t, "the cluster has a leader, and creates the stream", func() bool {
		_, err := n.js.AddStream(stream)
		return err == nil
	})
}

// stream waits until the stream has a leader, and the other replicas have all messages.
func (n *natsCluster) stream() (info *nats.StreamInfo) {
	n.t.Helper()
	eventually(n.t, "the stream has a leader and two current replicas", func() bool {
		var err error
		info, err = n.js.StreamInfo("EVENTS")
		return err == nil && info.Cluster != nil && info.Cluster.Leader != "" &&
			len(info.Cluster.Replicas) == len(n.servers)-1 &&
			!slices.ContainsFunc(info.Cluster.Replicas, func(r *nats.PeerInfo) bool { return !r.Current || r.Offline })
	})
	return info
}

// killLeader returns when the server runs again, and its replica has all messages.
func (n *natsCluster) killLeader() {
	n.t.Helper()
	leader := n.stream().Cluster.Leader
	number, err := strconv.Atoi(strings.TrimPrefix(leader, "s"))
	require.NoError(n.t, err)
	n.servers[number].kill()
	eventually(n.t, "another server leads the stream", func() bool {
		info, err := n.js.StreamInfo("EVENTS")
		return err == nil && info.Cluster != nil && info.Cluster.Leader != "" && info.Cluster.Leader != leader
	})
	n.start(number)
	n.stream()
}

// each calls note with the body of every message.
func (n *natsCluster) each(note func(body []byte)) {
	n.t.Helper()
	stored := n.stream().State.Msgs
	var messages *nats.Subscription
	eventually(n.t, "the stream has a consumer", func() bool {
		var err error
		messages, err = n.js.SubscribeSync(brokerTarget, nats.OrderedConsumer())
		return err == nil
	})
	for range stored {
		message, err := messages.NextMsg(patience)
		require.NoError(n.t, err)
		note(message.Data)
	}
}
