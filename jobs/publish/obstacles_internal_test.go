package publish

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestPlainStatementIsForGroupsWithoutObstacles(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := NewPublisher(PublisherParts{}, PublisherOptions{})
		plain := func(keyed bool, to ...destination) bool {
			return p.publishStatement([]*publishRequest{{keyed: keyed}}, to) == plainPublishStatement
		}
		topic, one, two := destination{topicID: 1}, destination{subscriptionID: 1}, destination{subscriptionID: 2}
		require.True(t, plain(false, topic, one, two))
		require.False(t, plain(true, topic, one), "its keys would be stored without its events")
		require.False(t, plain(false, topic, one, destination{subscriptionID: 3, batching: true}))

		p.obstacles.Set(obstacleTime, subscriptionsOf([]destination{topic, one})...)
		require.False(t, plain(false, topic, one, two))
		require.True(t, plain(false, topic, two), "an obstacle delays no publish to other event subscriptions")
		time.Sleep(obstacleTime + 1) //nolint:forbidigo // virtual time
		require.True(t, plain(false, topic, one, two))
	})
}
