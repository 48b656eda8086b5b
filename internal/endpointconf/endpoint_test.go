package endpointconf_test

import (
	"net/netip"
	"net/url"
	"os"
	"strings"
	"testing"

	"postrider/internal/endpointconf"
	"postrider/internal/filter"

	"github.com/stretchr/testify/require"
)

// endpointTable has the accepted URLs first. More that are rejected are in testdata/rejected-endpoints.txt.
var endpointTable = []struct {
	name    string
	url     string
	allow   []netip.Prefix
	message string // part of the error; "" = accepted
}{
	{"https", "https://example.com/api/updates?code=s3cret", nil, ""},
	{"http", "http://example.com", nil, ""},
	{"scheme in upper case", "HTTPS://example.com/", nil, ""},
	{"a port", "https://example.com:65535/", nil, ""},
	{"a trailing dot", "https://example.com./", nil, ""},
	{"one label", "http://receiver:8080/events", nil, ""},
	{"underscore", "http://my_receiver/", nil, ""},
	{"punycode", "https://xn--bcher-kva.example/", nil, ""},
	{"a digit in front", "https://1.example.com/", nil, ""},
	{"a public address", "https://8.8.8.8/", nil, ""},
	{"a public IPv6 address", "https://[2606:4700:4700::1111]:8443/", nil, ""},
	{"longest", "https://example.com/" + strings.Repeat("a", 2028), nil, ""},
	{"loopback opened", "http://127.0.0.1:8080/", prefixes("127.0.0.0/8"), ""},
	{"localhost opened by IPv4", "http://localhost:8080/", prefixes("127.0.0.0/8"), ""},
	{"localhost opened by IPv6", "http://LOCALHOST:8080/", prefixes("::1/128"), ""},
	{"longest label", "https://" + strings.Repeat("a", 63) + ".example/", nil, ""},
	{"longest host", "https://" + strings.Repeat("a.", 125) + "com/", nil, ""},
	{"all characters of a URL", "https://example.com/-._~:/@!$&'()*+,;=%20%c3%9F?a[]=/?:@%00", nil, ""},
	{"too long", "https://example.com/" + strings.Repeat("a", 2029), nil, "2048"},
	{"empty", "", nil, "absolute"},
	{"relative", "/api/updates", nil, "absolute"},
	{"without a scheme", "example.com/api", nil, "absolute"},
	{"another scheme", "ftp://example.com/", nil, "absolute"},
	{"a file", "file:///etc/passwd", nil, "absolute"},
	{"no host", "https:///api", nil, "name a host"},
	{"opaque", "https:example.com", nil, "name a host"},
	{"port without a host", "https://:443/", nil, "name a host"},
	{"user", "https://user@example.com/", nil, "user name"},
	{"user and password", "https://user:pass@example.com/", nil, "user name"},
	{"fragment", "https://example.com/#top", nil, "fragment"},
	{"empty fragment", "https://example.com/#", nil, "fragment"},
	{"port in words", "https://example.com:https/", nil, "must be a URL"},
	{"a space", "https://exam ple.com/", nil, "must be a URL"},
	{"a line break in the host", "https://example.com\r\nX-Y: z", nil, "must be a URL"},
	{"a space in the path", "https://example.com/a b", nil, `write " " as %20`},
	{"a space in the query", "https://example.com?a=b c", nil, `write " " as %20`},
	{"a line break", "https://example.com/\r\nX-Y: z", nil, `write "\r" as %0D`},
	{"NUL", "https://example.com/?a=\x00", nil, `write "\x00" as %00`},
	{"DEL", "https://example.com/?a=\x7f", nil, `write "\x7f" as %7F`},
	{"not UTF-8", "https://example.com/\xff", nil, `write "\xff" as %FF`},
	{"a quotation mark", `https://example.com/?a="b"`, nil, `write "\"" as %22`},
	{"angle brackets", "https://example.com/?a=<b>", nil, `write "<" as %3C`},
	{"a backslash", `https://example.com/a\b`, nil, `write "\\" as %5C`},
	{"a bar", "https://example.com/?a=b|c", nil, `write "|" as %7C`},
	{"braces", "https://example.com/{id}", nil, `write "{" as %7B`},
	{"non-ASCII in the path", "https://example.com/straße", nil, `write "ß" as %C3%9F`},
	{"non-ASCII in the query", "https://example.com/?a=€", nil, `write "€" as %E2%82%AC`},
	{"half an escape in the path", "https://example.com/100%", nil, `write "%" as %25`},
	{"a bad escape in the query", "https://example.com/?a=%zz", nil, `write "%" as %25`},
	{"other script", "https://bücher.example/", nil, "punycode"},
	{"a character no host has", "https://exam!ple.com/", nil, "ASCII letters"},
	{"empty label", "https://example..com/", nil, "ASCII letters"},
	{"only a dot", "https://./", nil, "ASCII letters"},
	{"long label", "https://" + strings.Repeat("a", 64) + ".example/", nil, "ASCII letters"},
	{"long host", "https://" + strings.Repeat("a.", 125) + "comm/", nil, "ASCII letters"},
	{"upper-case hexadecimal", "http://0X7F.1/", nil, "four decimal numbers"},
	{"bare 0x", "http://127.0.0x/", nil, "four decimal numbers"},
	{"part above 255", "http://256.1.1.1/", nil, "four decimal numbers"},
	{"odd address although loopback is opened", "http://127.1/", prefixes("127.0.0.0/8"), "four decimal numbers"},
	{"private", "https://192.168.0.1/", nil, "private 192.168.0.0/16"},
	{"zone", "http://[fe80::1%25eth0]/", prefixes("fe80::/10"), "zone"},
	{"below localhost", "http://api.localhost/", nil, "loopback 127.0.0.0/8"},
	{"metadata by address", "http://169.254.169.254/latest/meta-data/", prefixes("169.254.0.0/16"), "cloud metadata"},
	{"metadata by name in another spelling", "http://Metadata.Google.Internal.:80/", nil, "metadata service"},
}

func TestEndpointURL(t *testing.T) {
	t.Parallel()
	for _, tt := range endpointTable {
		u, err := endpointconf.EndpointURL(tt.url, tt.allow)
		if tt.message == "" {
			require.NoError(t, err, tt.name)
			require.NotEmpty(t, u.Host, tt.name)
			continue
		}
		require.Nil(t, u, tt.name)
		require.Contains(t, requireField(t, err, "endpointUrl").Message, tt.message, tt.name)
	}
}

// requireField requires a *ValidationError on that field and returns it.
func requireField(t *testing.T, err error, field string) filter.ValidationError {
	t.Helper()
	var invalid *filter.ValidationError
	require.ErrorAs(t, err, &invalid)
	require.Equal(t, field, invalid.Field)
	require.NotEmpty(t, invalid.Message)
	return *invalid
}

func TestEndpointURLErrorsHaveNoSecrets(t *testing.T) {
	t.Parallel()
	for _, raw := range []string{
		"https://user:s3cret@example.com/", "https://example.com/?code=s3cret%zz",
		"https://127.0.0.1/?code=s3cret", "https://example.com:0/?code=s3cret",
		"https://exam ple.com/?code=s3cret", "ftp://example.com/s3cret", "https://s3cret..example/",
	} {
		_, err := endpointconf.EndpointURL(raw, nil)
		require.Error(t, err)
		require.NotContains(t, err.Error(), "s3cret")
	}
}

func TestBaseURL(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]string{
		"https://example.com:8443/api/updates?code=s3cret": "https://example.com:8443/api/updates",
		"https://example.com?":                             "https://example.com",
		"https://u:p@example.com/a%2Fb?x#y":                "https://example.com/a%2Fb",
	} {
		u, err := url.Parse(raw)
		require.NoError(t, err)
		before := *u
		require.Equal(t, want, endpointconf.BaseURL(u))
		require.Equal(t, before, *u, "the URL is unchanged")
	}
}

// FuzzEndpointURL: every accepted URL is an http URL with a host, and parses to itself.
func FuzzEndpointURL(f *testing.F) {
	for _, raw := range []string{
		"https://example.com/a?b", "http://127.1/", "http://[::1]:80/", "http://0x7f.1", "https://a:b@c/#d",
		"http://localhost.",
	} {
		f.Add(raw)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		u, err := endpointconf.EndpointURL(raw, nil)
		if err != nil {
			requireField(t, err, "endpointUrl")
			return
		}
		require.Contains(t, []string{"http", "https"}, u.Scheme)
		require.Nil(t, u.User)
		again, err := endpointconf.EndpointURL(u.String(), nil)
		if len(u.String()) <= 2048 {
			require.NoError(t, err)
			require.Equal(t, u.Host, again.Host)
		}
		if addr, err := netip.ParseAddr(u.Hostname()); err == nil {
			require.NoError(t, endpointconf.Address(addr, nil))
		}
	})
}

// rejectedEndpoints are the rows of testdata/rejected-endpoints.txt: a URL and a part of the error.
func rejectedEndpoints(t *testing.T, port string) map[string]string {
	t.Helper()
	text, err := os.ReadFile("testdata/rejected-endpoints.txt")
	require.NoError(t, err)
	rows := map[string]string{}
	for line := range strings.Lines(string(text)) {
		if endpoint, says, found := strings.Cut(strings.TrimSuffix(line, "\n"), "\t"); found {
			rows[strings.ReplaceAll(endpoint, "{port}", port)] = says
		}
	}
	require.Greater(t, len(rows), 100)
	return rows
}

// URLs of private networks, metadata services and other protocols in unusual spellings, as an endpoint and as a token
// server. Those of metadata services are rejected even if everything is opened.
func TestRejectedEndpoints(t *testing.T) {
	t.Parallel()
	all := prefixes("0.0.0.0/0", "::/0")
	endpoint, err := url.Parse("https://example.com/")
	require.NoError(t, err)
	for raw, says := range rejectedEndpoints(t, "8080") {
		for _, scheme := range []string{"http:", "https:"} {
			raw := strings.Replace(raw, "http:", scheme, 1)
			_, err := endpointconf.EndpointURL(raw, nil)
			require.Contains(t, requireField(t, err, "endpointUrl").Message, says, raw)
			if _, err = endpointconf.EndpointURL(raw, all); strings.Contains(says, "metadata") || says == "WireServer" {
				require.Contains(t, requireField(t, err, "endpointUrl").Message, says, raw)
			}
			c := endpointconf.Connection{OAuth2: &endpointconf.OAuth2{TokenURL: raw, ClientID: "a", ClientSecret: "b"}}
			found := c.Mistakes(endpoint, nil)
			require.Len(t, found, 1, raw)
			require.Contains(t, requireField(t, &found[0], "oauth2.tokenUrl").Message, says, raw)
		}
	}
}

func TestPorts(t *testing.T) {
	t.Parallel()
	at := func(text string, allow ...string) error {
		return endpointconf.Dialed(netip.MustParseAddrPort(text), false, prefixes(allow...))
	}
	for _, other := range []string{"1", "22", "25", "6000", "10080"} {
		require.ErrorContains(t, at("1.2.3.4:"+other), "port "+other+" must not be called")
		require.Error(t, at("[2606:4700:4700::1111]:"+other))
		require.NoError(t, at("10.0.0.1:"+other, "10.0.0.0/8"), "in an opened network")
		require.NoError(t, at("[::ffff:10.0.0.1]:"+other, "10.0.0.0/8"))
		require.Error(t, at("1.2.3.4:"+other, "10.0.0.0/8"))
		_, err := endpointconf.EndpointURL("https://example.com:"+other+"/", prefixes("10.0.0.0/8"))
		require.NoError(t, err, "a name may be in an opened network")
		name, err := url.Parse("https://example.com:" + other + "/")
		require.NoError(t, err)
		requireField(t, endpointconf.ProxiedPort(name), "endpointUrl")
		literal, err := url.Parse("https://10.0.0.1:" + other + "/")
		require.NoError(t, err)
		require.NoError(t, endpointconf.ProxiedPort(literal), "its network is opened")
		_, err = endpointconf.EndpointURL("https://1.2.3.4:"+other+"/", prefixes("10.0.0.0/8"))
		require.Error(t, err, "an address is in none")
	}
	for _, usual := range []string{"80", "443", "2", "8080", "8443", "10081", "65535"} {
		require.NoError(t, at("1.2.3.4:"+usual))
		require.NoError(t, endpointconf.ProxiedPort(&url.URL{Scheme: "https", Host: "example.com:" + usual}))
	}
}
