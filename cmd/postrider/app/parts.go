package app

import (
	"postrider/jobs"
	"postrider/server/management"
	"postrider/web"
)

// Engine returns the parts of the engine.
func (s *System) Engine() jobs.Parts {
	return jobs.Parts{
		Node: s.Node, DB: s.DB, Disk: s.Disk, Failpoint: s.Failpoint,
		Cache: s.Cache, Subscriptions: s.Subscriptions, Holds: s.Holds, Handshakes: s.Handshakes,
		Access: s.Access, Operator: s.Operator,
		Nodes: s.Nodes, Notifier: s.Notifier, Traffic: s.Traffic, JobRows: s.JobRows,
		Active: s.Active, Wake: s.Wake, Handoff: s.Handoff, Gate: s.Gate,
		Publisher: s.Publisher, Loader: s.Loader, Recorder: s.Recorder, Releaser: s.Releaser,
		Exports: s.Exports, Maintenance: s.Maintenance,
	}
}

// API returns the parts of the REST API.
func (s *System) API() management.Parts {
	return management.Parts{
		DB: s.DB, Clock: s.Clock, Cache: s.Cache, Topics: s.Topics, Subscriptions: s.Subscriptions, Holds: s.Holds,
		Handshakes: s.Handshakes, Policies: s.Policies, Publisher: s.Publisher, Access: s.Access, Reader: s.Reader,
		Operator: s.Operator,
	}
}

// Dashboard returns the parts of the dashboard.
func (s *System) Dashboard() web.Parts {
	return web.Parts{
		DB: s.DB, Clock: s.Clock, Cache: s.Cache, Topics: s.Topics, Subscriptions: s.Subscriptions, Holds: s.Holds,
		Access: s.Access, Reader: s.Reader, Operator: s.Operator,
	}
}
