package server

import (
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/labstack/echo/v4"

	"postrider/internal/access"
	"postrider/internal/catalog/spec"
	"postrider/jobs/pull"
	"postrider/server/api"
	"postrider/server/auth"
	"postrider/server/operations"
	v1 "postrider/server/v1"
)

// permission is the least scope that a route needs.
type permission = access.Scope

const (
	anyone    permission = "none"
	publisher            = access.ScopePublish // the handler checks the access key
	receiver             = access.ScopeReceive // as well
	read                 = access.ScopeRead
	operate              = access.ScopeOperate
	admin                = access.ScopeAdmin
	query     permission = "query" // scope read, and the flag query
)

const (
	get   = http.MethodGet
	put   = http.MethodPut
	post  = http.MethodPost
	patch = http.MethodPatch
	del   = http.MethodDelete

	options = http.MethodOptions

	subscription         = "/v1/topics/:topic/subscriptions/:subscription"
	validationPath       = "/topics/:topic/eventsubscriptions/:subscription/validate"
	publishPath          = "/topics/:topic/api/events"
	namespacePublishPath = "/topics/:topic:publish"
	consumerPath         = "/topics/:topic/eventsubscriptions/:subscription"
	deadLetter           = "/v1/deadLetters/:deadLetterId"
	delivery             = "/v1/deliveries/:deliveryId"
	problem              = "/v1/problems/:problemId"
	relayFeed            = "/v1/relayFeeds/:relayFeedId"
)

// route is an operation, its address, and who may use it.
type route struct {
	method, path string
	access       permission
	api.Route
}

// custom is a route whose handler reads the request and sends the response. errors are the statuses of its errors;
// openapi/base.yaml describes the rest.
func custom(id string, handle echo.HandlerFunc, errors ...int) api.Route {
	return api.Route{ID: id, Handle: handle, Errors: errors}
}

// routes are the routes of the API.
func (s *Server) routes() []route {
	m := &v1.Handlers{
		Parts: s.parts, Allow: s.options.AllowCIDR, AllowHTTP: s.options.AllowHTTP, Locations: s.options.DeadLetters,
		FilterLimits: s.options.FilterLimits, HeaderLimits: s.options.HeaderLimits,
		DefaultValidation: s.options.DefaultValidation, ValidationWait: s.options.ValidationWait,
		Check: s.options.Check, LeastKeyBytes: spec.KeyBytes, Log: s.log,
	}
	if s.options.Dev != nil {
		m.LeastKeyBytes = spec.DevKeyBytes
	}
	o := &operations.Handlers{Parts: s.parts}
	return slices.Concat(s.customRoutes(), s.consumerRoutes(),
		tagged("topics", []route{
			{get, "/v1/topics", read, api.Handle("listTopics", m.ListTopics)},
			{put, "/v1/topics/:topic", admin, api.Handle("putTopic", m.PutTopic, 409)},
			{get, "/v1/topics/:topic", read, api.Handle("getTopic", m.GetTopic, 404)},
			{del, "/v1/topics/:topic", admin, api.Handle("deleteTopic", m.DeleteTopic, 404, 409)},
			{post, "/v1/topics/:topic/listKeys", admin, api.Handle("listTopicKeys", m.ListTopicKeys, 404, 409)},
			{post, "/v1/topics/:topic/regenerateKey", admin, api.Handle("regenerateTopicKey", m.RegenerateTopicKey, 404, 409)},
			{post, "/v1/topics/:topic/testFilter", read, api.Handle("testFilter", m.TestFilter, 404)},
		}),
		tagged("event subscriptions", []route{
			{get, "/v1/topics/:topic/subscriptions", read, api.Handle("listSubscriptions", m.ListSubscriptions, 404)},
			{put, subscription, admin, api.Handle("putSubscription", m.PutSubscription, 404, 409)},
			{get, subscription, read, api.Handle("getSubscription", m.GetSubscription, 404)},
			{patch, subscription, admin, api.Handle("patchSubscription", m.PatchSubscription, 404, 409)},
			{del, subscription, admin, api.Handle("deleteSubscription", m.DeleteSubscription, 404)},
			{post, subscription + "/pause", operate, api.Handle("pauseSubscription", m.PauseSubscription, 404)},
			{post, subscription + "/resume", operate, api.Handle("resumeSubscription", m.ResumeSubscription, 404)},
			{post, subscription + "/release", operate, api.Handle("releaseSubscription", m.ReleaseSubscription, 404, 409)},
			{post, subscription + "/probe", operate, api.Handle("probeSubscription", m.ProbeSubscription, 404, 409)},
			{post, subscription + "/validate", operate, api.Handle("validateSubscription", m.ValidateSubscription, 404, 409)},
			{post, subscription + "/testFilter", read, api.Handle("testSubscriptionFilter", m.TestSubscriptionFilter, 404)},
			{post, subscription + "/testDelivery", operate, api.Handle("testDelivery", m.TestDelivery, 404, 409)},
			{
				post, subscription + "/getFullUrl", admin,
				api.Handle("revealSubscriptionEndpoint", m.RevealSubscriptionEndpoint, 404),
			},
			{
				post, subscription + "/getDeliveryAttributes", admin,
				api.Handle("revealSubscriptionHeaders", m.RevealSubscriptionHeaders, 404),
			},
			{post, subscription + "/getSigningSecrets", admin, api.Handle("getSigningSecrets", m.GetSigningSecrets, 404)},
			{
				post, subscription + "/rotateSigningSecret", admin,
				api.Handle("rotateSigningSecret", m.RotateSigningSecret, 404, 409),
			},
		}),
		operationRoutes(o),
		tagged("retry policies", []route{
			{get, "/v1/policies", read, api.Handle("listPolicies", m.ListPolicies)},
			{put, "/v1/policies/:policy", admin, api.Handle("putPolicy", m.PutPolicy, 409)},
			{get, "/v1/policies/:policy", read, api.Handle("getPolicy", m.GetPolicy, 404)},
			{del, "/v1/policies/:policy", admin, api.Handle("deletePolicy", m.DeletePolicy, 404, 409)},
		}),
		tagged("configuration", []route{
			{post, "/v1/apply", admin, api.Handle("applyConfiguration", m.Apply)},
		}),
		tagged("access", []route{
			{get, "/v1/audit", read, api.Handle("listAudit", o.ListAudit, 404)},
			{get, "/v1/apiKeys", admin, api.Handle("listAPIKeys", m.ListAPIKeys)},
			{post, "/v1/apiKeys", admin, api.Handle("createAPIKey", m.CreateAPIKey, 404, 409)},
			{get, "/v1/apiKeys/:apiKey", admin, api.Handle("getAPIKey", m.GetAPIKey, 404)},
			{del, "/v1/apiKeys/:apiKey", admin, api.Handle("revokeAPIKey", m.RevokeAPIKey, 404)},
			{get, "/v1/users", admin, api.Handle("listUsers", m.ListUsers)},
			{put, "/v1/users/:user", admin, api.Handle("putUser", m.PutUser, 409)},
			{get, "/v1/users/:user", admin, api.Handle("getUser", m.GetUser, 404)},
			{del, "/v1/users/:user", admin, api.Handle("deleteUser", m.DeleteUser, 404, 409)},
			{get, "/v1/me", read, api.Handle("whoAmI", m.WhoAmI)},
		}),
	)
}

// operationRoutes are the routes of what was published and delivered.
func operationRoutes(o *operations.Handlers) []route {
	return slices.Concat(
		tagged("events", []route{
			{post, subscription + "/redeliverEvents", operate, api.Handle("redeliverEvents", o.RedeliverEvents, 404, 409)},
			{post, "/v1/topics/:topic/eraseSubject", operate, api.Handle("eraseSubject", o.EraseSubject, 404, 409)},
			{get, "/v1/events", read, api.Handle("listEvents", o.ListEvents, 404)},
			{get, "/v1/activity", read, api.Handle("listActivity", o.ListActivity, 404)},
			{get, "/v1/events/:systemId", read, api.Handle("getEvent", o.GetEvent, 404)},
			{post, "/v1/events/:systemId/redeliver", operate, api.Handle("redeliverEvent", o.RedeliverEvent, 404, 409)},
			{post, "/v1/events/:systemId/erase", operate, api.Handle("eraseEvent", o.EraseEvent, 404, 409)},
		}),
		tagged("relay feeds", []route{
			{get, "/v1/relayFeeds", read, api.Handle("listRelayFeeds", o.ListRelayFeeds, 404)},
			{get, relayFeed, read, api.Handle("getRelayFeed", o.GetRelayFeed, 404)},
			{post, relayFeed + "/openCallback", operate, api.Handle("openRelayCallback", o.OpenRelayCallback, 404, 409)},
		}),
		tagged("problems", []route{
			{get, "/v1/problems", read, api.Handle("listProblems", o.ListProblems, 404)},
			{get, problem, read, api.Handle("getProblem", o.GetProblem, 404)},
			{post, problem + "/acknowledge", operate, api.Handle("acknowledgeProblem", o.AcknowledgeProblem, 404)},
			{post, problem + "/resolve", operate, api.Handle("resolveProblem", o.ResolveProblem, 404)},
		}),
		tagged("deliveries", []route{
			{get, "/v1/deliveries", read, api.Handle("listDeliveries", o.ListDeliveries, 404)},
			{post, "/v1/deliveries/retryNow", operate, api.Handle("retryDeliveries", o.RetryDeliveries, 404)},
			{post, "/v1/deliveries/cancel", operate, api.Handle("cancelDeliveries", o.CancelDeliveries, 404)},
			{get, delivery, read, api.Handle("getDelivery", o.GetDelivery, 404)},
			{get, delivery + "/attempts", read, api.Handle("listDeliveryAttempts", o.ListDeliveryAttempts, 404)},
			{post, delivery + "/cancel", operate, api.Handle("cancelDelivery", o.CancelDelivery, 404, 409)},
			{post, delivery + "/retryNow", operate, api.Handle("retryDelivery", o.RetryDelivery, 404, 409)},
			{post, delivery + "/deadLetterNow", operate, api.Handle("deadLetterDelivery", o.DeadLetterDelivery, 404, 409)},
		}),
		tagged("batches", []route{
			{get, "/v1/batches", read, api.Handle("listBatches", o.ListBatches, 404)},
			{get, "/v1/batches/:batchId", read, api.Handle("getBatch", o.GetBatch, 404)},
			{get, "/v1/batches/:batchId/members", read, api.Handle("listBatchMembers", o.ListBatchMembers, 404)},
			{get, "/v1/batches/:batchId/attempts", read, api.Handle("listBatchAttempts", o.ListBatchAttempts, 404)},
		}),
		tagged("dead letters", []route{
			{get, "/v1/deadLetters", read, api.Handle("listDeadLetters", o.ListDeadLetters, 404)},
			{post, "/v1/deadLetters/redeliver", operate, api.Handle("redeliverDeadLetters", o.RedeliverDeadLetters, 404, 409)},
			{post, "/v1/deadLetters/repair", operate, api.Handle("repairDeadLetters", o.RepairDeadLetters, 404, 409)},
			{post, "/v1/deadLetters/resolve", operate, api.Handle("resolveDeadLetters", o.ResolveDeadLetters, 404)},
			{post, "/v1/deadLetters/purge", operate, api.Handle("purgeDeadLetters", o.PurgeDeadLetters, 404)},
			{
				post, "/v1/topics/:topic/importDeadLetters", operate,
				api.Handle("importDeadLetters", o.ImportDeadLetters, 404),
			},
			{get, "/v1/deadLetterExport", read, api.Handle("exportDeadLetters", o.ExportDeadLetters, 404)},
			{get, deadLetter, read, api.Handle("getDeadLetter", o.GetDeadLetter, 404)},
			{del, deadLetter, operate, api.Handle("purgeDeadLetter", o.PurgeDeadLetter, 404)},
			{post, deadLetter + "/redeliver", operate, api.Handle("redeliverDeadLetter", o.RedeliverDeadLetter, 404, 409)},
			{post, deadLetter + "/resolve", operate, api.Handle("resolveDeadLetter", o.ResolveDeadLetter, 404)},
			{post, deadLetter + "/reopen", operate, api.Handle("reopenDeadLetter", o.ReopenDeadLetter, 404)},
		}),
		tagged("queries", []route{
			{get, "/v1/queries", query, api.Handle("listQueries", o.ListQueries)},
			{post, "/v1/queries/run", query, api.Handle("runSQL", o.RunSQL, 409)},
			{put, "/v1/queries/:query", query, api.Handle("putQuery", o.PutQuery, 409)},
			{get, "/v1/queries/:query", query, api.Handle("getQuery", o.GetQuery, 404)},
			{del, "/v1/queries/:query", query, api.Handle("deleteQuery", o.DeleteQuery, 404)},
			{post, "/v1/queries/:query/run", query, api.Handle("runQuery", o.RunQuery, 404, 409)},
		}),
		tagged("operations", []route{
			{get, "/v1/operations", read, api.Handle("listOperations", o.ListOperations)},
			{get, "/v1/operations/:operationId", read, api.Handle("getOperation", o.GetOperation, 404)},
			{post, "/v1/operations/:operationId/cancel", operate, api.Handle("cancelOperation", o.CancelOperation, 404)},
		}),
	)
}

// tagged sets the tag of routes.
func tagged(tag string, routes []route) []route {
	for i := range routes {
		routes[i].Tag = tag
	}
	return routes
}

// customRoutes are the routes for publishers, endpoints and monitoring.
func (s *Server) customRoutes() []route {
	return slices.Concat(
		tagged("publishing", []route{
			{post, publishPath, publisher, custom("publishEvents", s.publish, 400, 401, 403, 404, 413, 415, 429, 500, 503)},
			{options, publishPath, publisher, custom("allowRelay", s.allowRelay, 400, 401, 403, 404, 405, 429, 500, 503)},
			{
				post, namespacePublishPath, publisher,
				custom("publishCloudEvents", s.publishToNamespace, 400, 401, 403, 404, 413, 415, 429, 500, 503),
			},
		}),
		tagged("validation", []route{
			{get, validationPath, anyone, custom("openValidationUrl", s.openValidationURL, 400, 404, 429, 500, 503)},
			{post, validationPath, anyone, custom("postValidationUrl", s.openValidationURL, 400, 404, 429, 500, 503)},
		}),
		tagged("health", []route{
			{get, "/healthz", anyone, custom("health", s.healthz)},
			{get, "/readyz", anyone, custom("readiness", s.readyz, 500, 503)},
			{get, "/metrics", s.metricsAccess(), custom("metrics", s.metrics, 401, 403, 404, 429, 500, 503)},
		}),
		tagged("specification", []route{
			{get, "/openapi.yaml", anyone, custom("specification", s.specification, 429)},
			{get, "/openapi", anyone, custom("reference", s.reference, 429, 500)},
		}),
	)
}

// consumerRoutes are the routes for consumers of event subscriptions with delivery mode Queue.
func (s *Server) consumerRoutes() []route {
	var list []route
	for _, r := range []struct {
		operation, id string
		handle        func(echo.Context, *consumer) error
	}{
		{"receive", "receiveEvents", s.receive},
		{"acknowledge", "acknowledgeEvents", s.settle(pull.Acknowledge)},
		{"release", "releaseEvents", s.settle(pull.Release)},
		{"reject", "rejectEvents", s.settle(pull.Reject)},
		{"renewLock", "renewLocks", s.renewLocks},
	} {
		list = append(list, route{
			post, consumerPath + ":" + r.operation, receiver,
			custom(r.id, s.consumes(r.handle), 400, 401, 403, 404, 413, 415, 429, 500, 503),
		})
	}
	return tagged("pull delivery", list)
}

// addRoutes adds the routes to the router. It does not split the operation from the name before it, as in
// /topics/orders:publish: routes that differ in the operation only are one route of the router.
func (s *Server) addRoutes() {
	byPath := map[string]map[string]route{} // of POST, by path without the operation
	for _, r := range s.routes() {
		var middleware []echo.MiddlewareFunc
		if r.ID != "receiveEvents" { // which waits as long as its client
			middleware = append(middleware, s.finish)
		}
		if r.access == query {
			middleware = append(middleware, s.auth.Permit(access.RoleViewer), auth.PermitQuery)
		} else if needed := r.access.Role(); needed != "" {
			middleware = append(middleware, s.auth.Permit(needed))
		}
		if strings.HasPrefix(r.path, "/v1/") {
			middleware = append(middleware, v1.WithBase(s.options.PublicURL))
		}
		for _, m := range slices.Backward(middleware) {
			r.Handle = m(r.Handle)
		}
		path, operation, has := cutOperation(r.path)
		switch {
		case !has:
			s.echo.Add(r.method, r.path, r.Handle)
		case byPath[path] == nil:
			byPath[path] = map[string]route{operation: r}
			s.echo.POST(path, chooseOperation(byPath[path]))
		default:
			byPath[path][operation] = r
		}
	}
}

// cutOperation splits a path after its last name: /topics/orders:publish is /topics/orders and publish.
func cutOperation(path string) (before, operation string, has bool) {
	at := strings.LastIndexByte(path, ':')
	if at <= 0 || path[at-1] == '/' || strings.Contains(path[at:], "/") {
		return path, "", false
	}
	return path[:at], path[at+1:], true
}

// chooseOperation is the handler of routes by their operations.
func chooseOperation(routes map[string]route) echo.HandlerFunc {
	return func(c echo.Context) error {
		names, values := c.ParamNames(), slices.Clone(c.ParamValues())
		last := len(names) - 1
		name, operation, _ := cutOperation(api.PathValue(c, names[last]))
		r, known := routes[operation]
		if !known {
			return echo.ErrNotFound
		}
		if values[last] = name; c.Request().URL.RawPath != "" {
			values[last] = url.PathEscape(name) // see api.PathValue
		}
		c.SetParamValues(values...)
		c.SetPath(r.path)
		return r.Handle(c)
	}
}
