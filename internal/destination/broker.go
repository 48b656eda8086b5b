package destination

import (
	"fmt"
	"net"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"postrider/internal/endpointconf"
	"postrider/internal/event"
	"postrider/internal/filter"
)

const (
	maxServers  = 16
	maxSubject  = 256
	natsPort    = "4222"
	natsScheme  = "nats://"
	natsTLS     = "tls://"
	natsHeaders = "nats-"
)

var (
	kafkaTopic = regexp.MustCompile(`^[a-zA-Z0-9._-]{1,249}$`)
	natsStream = regexp.MustCompile(`^[^\s.*>/\\[:cntrl:]]{1,255}$`)
	// Source: NATS, Authentication and authorization, JWT; github.com/nats-io/nkeys, creds_utils.go.
	natsJWT  = regexp.MustCompile(`-{3,}BEGIN NATS USER JWT-{3,}\s+[\w-]+\.[\w-]+\.[\w-]+\s+-{3,}END NATS USER JWT-{3,}`)
	natsSeed = regexp.MustCompile(`-{3,}BEGIN USER NKEY SEED-{3,}\s+SU[A-Z2-7]{56}\s+-{3,}END USER NKEY SEED-{3,}`)
)

// normalizeServers writes servers as host:port in lower case. tls:// stays if tls is false, which it contradicts.
func (p *Properties) normalizeServers(t Type) {
	p.Servers = slices.Clone(p.Servers)
	for i, server := range p.Servers {
		server = strings.ToLower(strings.TrimSpace(server))
		if t == NatsJetStream {
			server = strings.TrimPrefix(server, natsScheme)
			if p.UseTLS() {
				server = strings.TrimPrefix(server, natsTLS)
			}
			if u, err := url.Parse("tls://" + server); err == nil && u.Host == server && u.Port() == "" && u.User == nil {
				server = net.JoinHostPort(u.Hostname(), natsPort)
			}
		}
		p.Servers[i] = server
	}
}

// serverMistakes checks the addresses. Without TLS, events go to opened networks unless the operator allows plain
// connections; credentials go to opened networks only.
func (c *check) serverMistakes() {
	if n := len(c.p.Servers); n < 1 || n > maxServers {
		c.add("servers", "must have 1 to %d entries, has %d", maxServers, n)
	}
	secret := c.p.Password != "" || c.p.Credentials != "" || c.p.SASLMechanism == SASLOAuthBearer
	for i, server := range c.p.Servers {
		name := fmt.Sprintf("servers[%d]", i)
		host, port, err := net.SplitHostPort(server)
		u, invalid := endpointconf.EndpointURL("https://"+server, c.Allow)
		switch {
		case strings.HasPrefix(server, natsTLS):
			c.add(name, "must not begin with %s if tls is false", natsTLS)
		case err != nil || host == "" || port == "" || u != nil && u.Host != server || strings.ContainsAny(server, "@/?#"):
			c.add(name, "must be host:port, such as broker-1.example.com:9092, is %q", cut(withoutUser(server), 80))
		case invalid != nil:
			c.add(name, "%s", message(invalid))
		case c.p.UseTLS():
		case c.AllowHTTP && !secret:
		case plainProblem(u, c) && secret:
			c.add(name, "must be in a network that --allow-cidr opens if tls is false: the credentials would be readable")
		case plainProblem(u, c):
			c.add(name, "must be in a network that --allow-cidr opens if tls is false, unless the service runs with "+
				"--allow-http")
		}
	}
}

// withoutUser is a server without what precedes @, which may be a password.
func withoutUser(server string) string { return server[strings.LastIndexByte(server, '@')+1:] }

func plainProblem(u *url.URL, c *check) bool {
	plain := *u
	plain.Scheme = "http"
	return endpointconf.PlainEndpoint(&plain, c.Allow) != nil
}

func (c *check) kafka() {
	c.serverMistakes()
	switch topic := c.p.Topic; {
	case topic == "":
		c.add("topic", "is required")
	case !kafkaTopic.MatchString(topic) || topic == "." || topic == "..":
		c.add("topic", "must be 1 to 249 letters, digits, '.', '_' and '-', not . or .., is %q", cut(topic, 80))
	}
	switch c.p.MessageKey {
	case "", KeyNone, KeyID, KeySubject, KeyPartitionKey:
	default:
		if problem := filter.DefaultLimits().KeyProblem(c.p.MessageKey); problem != "" {
			c.add("messageKey", "must be %s, %s, %s, %s or the path of a value in the event: %s", KeyNone, KeyID,
				KeySubject, KeyPartitionKey, problem)
		}
	}
	switch mode := c.p.ContentMode; {
	case mode != "" && mode != Structured && mode != Binary:
		c.add("contentMode", "must be %s or %s, is %q", Structured, Binary, cut(string(mode), 80))
	case mode == Binary && c.Schema != event.CloudEvents:
		c.add("contentMode", "must be %s unless eventDeliverySchema is %s, is %s", Structured, event.CloudEvents, mode)
	}
	c.sasl()
}

func (c *check) sasl() {
	mechanism := c.p.SASLMechanism
	switch mechanism {
	case "", SASLNone, SASLOAuthBearer:
		for _, name := range c.present("username", "password") {
			c.add(name, "must be absent unless saslMechanism is %s, %s or %s", SASLPlain, SASLScram256, SASLScram512)
		}
	case SASLPlain, SASLScram256, SASLScram512:
		for _, name := range c.absent("username", "password") {
			c.add(name, "is required by saslMechanism %s", mechanism)
		}
	default:
		c.add("saslMechanism", "must be %s, %s, %s, %s or %s, is %q", SASLNone, SASLPlain, SASLScram256, SASLScram512,
			SASLOAuthBearer, cut(string(mechanism), 80))
		return
	}
	if c.OAuth2 && mechanism != SASLOAuthBearer {
		c.found = append(c.found, filter.ValidationError{
			Field: "oauth2", Message: fmt.Sprintf("must be absent unless saslMechanism is %s", SASLOAuthBearer),
		})
	} else if !c.OAuth2 && mechanism == SASLOAuthBearer {
		c.add("saslMechanism", "needs oauth2, which has the credentials for %s", mechanism)
	}
}

func (c *check) nats() {
	c.serverMistakes()
	if c.p.Subject == "" {
		c.add("subject", "is required")
	} else if problem := subjectProblem(c.p.Subject); problem != "" {
		c.add("subject", "%s, is %q", problem, cut(c.p.Subject, 80))
	}
	if stream := c.p.Stream; stream != "" && !natsStream.MatchString(stream) {
		c.add("stream", `must be 1 to 255 characters without spaces and . * > / \, is %q`, cut(stream, 80))
	}
	login := c.present("username", "password")
	switch {
	case c.p.Credentials != "" && len(login) > 0:
		c.add("credentials", "must be absent beside username and password: omit one of them")
	case c.p.Username != "" && c.p.Password == "": // a password alone is a token
		c.add("password", "is required beside username")
	case c.p.Credentials != "" && (!natsJWT.MatchString(c.p.Credentials) || !natsSeed.MatchString(c.p.Credentials)):
		c.add("credentials", "must be the text of a .creds file: a NATS USER JWT and a USER NKEY SEED with their BEGIN and "+
			"END lines")
	}
	if c.OAuth2 {
		c.found = append(c.found, filter.ValidationError{
			Field: "oauth2", Message: "must be absent: NATS uses username and password, or credentials",
		})
	}
}

func subjectProblem(subject string) string {
	first, _, _ := strings.Cut(subject, ".")
	switch {
	case len(subject) > maxSubject:
		return fmt.Sprintf("must be 1 to %d bytes long", maxSubject)
	case strings.ContainsFunc(subject, func(r rune) bool { return r <= ' ' || r == 0x7f || r == '*' || r == '>' }):
		return "must have no spaces and no wildcards * and >"
	case slices.Contains(strings.Split(subject, "."), ""):
		return "must be tokens with a dot between them, none of them empty"
	case first == "$JS" || first == "$SYS":
		return "must not begin with $JS or $SYS, which are the server's own"
	}
	return ""
}
