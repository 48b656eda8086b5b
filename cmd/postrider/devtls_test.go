package main

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestDevKeepsItsAuthorityUntilItEndsSoon(t *testing.T) {
	t.Parallel()
	now := time.Now()
	d := devTLS{dir: filepath.Join(t.TempDir(), "tls")}
	prepared := func(at time.Time) string {
		_, err := d.prepare(at)
		require.NoError(t, err)
		for file, mode := range map[string]os.FileMode{d.files().TLSKey: 0o600, d.files().TLSCert: 0o644} {
			info, err := os.Stat(file)
			require.NoError(t, err)
			require.Equal(t, mode, info.Mode().Perm(), file)
		}
		return contentOf(t, d.files().TLSCert)
	}
	first := prepared(now)
	require.Equal(t, first, prepared(now.Add(devAuthorityLasts-devRenewBefore-time.Minute)))
	renewed := prepared(now.Add(devAuthorityLasts - devRenewBefore + time.Minute))
	require.NotEqual(t, first, renewed)
	require.NoError(t, os.Remove(d.files().TLSKey))
	remade := prepared(now)
	require.NotEqual(t, renewed, remade)
	require.NoError(t, os.WriteFile(d.files().TLSKey, []byte("lost"), 0o600))
	again := prepared(now)
	require.NotEqual(t, remade, again)
	d.names = []string{"Postrider."}
	named := prepared(now)
	require.NotEqual(t, again, named)
	require.Equal(t, named, prepared(now))
}

// The folder may have the files of another authority, in which case nothing is replaced.
func TestDevReplacesNoOtherAuthority(t *testing.T) {
	t.Parallel()
	foreign, err := certify(&x509.Certificate{NotAfter: time.Now().Add(time.Hour), IsCA: true}, nil)
	require.NoError(t, err)
	certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: foreign.Certificate[0]})
	for name, content := range map[string][]byte{"ca.pem": certificate, "ca-key.pem": []byte("key"), "ca.pem/": nil} {
		d := devTLS{dir: t.TempDir()}
		file := filepath.Join(d.dir, name)
		if content == nil {
			require.NoError(t, os.Mkdir(file, 0o700))
		} else {
			require.NoError(t, os.WriteFile(file, content, 0o600))
		}
		_, err := d.prepare(time.Now())
		require.ErrorContains(t, err, file)
		entries, err := os.ReadDir(d.dir)
		require.NoError(t, err)
		require.Len(t, entries, 1)
		if content != nil {
			require.Equal(t, string(content), contentOf(t, file))
		}
	}
}

func contentOf(t *testing.T, file string) string {
	t.Helper()
	raw, err := os.ReadFile(file)
	require.NoError(t, err)
	return string(raw)
}

// Each name of this machine has a certificate that a client accepts which trusts the authority. A stolen key of the
// authority signs for no other name.
func TestNamesOfDevsCertificates(t *testing.T) {
	t.Parallel()
	a, err := devTLS{filepath.Join(t.TempDir(), "tls"), []string{"postrider"}}.prepare(time.Now())
	require.NoError(t, err)
	roots := x509.NewCertPool()
	roots.AddCert(a.authority.Leaf)
	verify := func(c *x509.Certificate, name string) error {
		_, err := c.Verify(x509.VerifyOptions{Roots: roots, DNSName: name})
		return err
	}
	for asked, name := range map[string]string{
		"localhost": "localhost", "": "127.0.0.1", "Orders.LocalHost": "orders.localhost", "postrider": "postrider",
		"orders.postrider": "orders.postrider", "example.com": "localhost", "notlocalhost": "localhost",
	} {
		issued, err := a.certificate(&tls.ClientHelloInfo{ServerName: asked})
		require.NoError(t, err)
		require.NoError(t, verify(issued.Leaf, name), asked)
		require.Error(t, verify(issued.Leaf, "example.com"), asked)
		require.NotContains(t, issued.Leaf.DNSNames, "*.localhost", "Node.js rejects it")
		again, err := a.certificate(&tls.ClientHelloInfo{ServerName: asked})
		require.NoError(t, err)
		require.Same(t, issued, again)
	}
	for _, template := range []*x509.Certificate{
		{DNSNames: []string{"example.com"}},
		{DNSNames: []string{"notlocalhost"}},
		{IPAddresses: []net.IP{net.IPv4(10, 0, 0, 1)}},
	} {
		template.NotAfter = time.Now().Add(time.Hour)
		stolen, err := certify(template, &a.authority)
		require.NoError(t, err)
		require.ErrorContains(t, verify(stolen.Leaf, ""), "x509: ")
	}
}

// at returns a listener without clients.
type at struct {
	net.Listener
	ip string
}

func (a at) Addr() net.Addr { return &net.TCPAddr{IP: net.ParseIP(a.ip)} }

func TestDevOnOpenAddresses(t *testing.T) {
	t.Parallel()
	here, anywhere := at{ip: "127.0.0.1"}, at{ip: "0.0.0.0"}
	require.True(t, (&dev{api: here}).local())
	require.True(t, (&dev{api: here, secure: here}).local())
	require.False(t, (&dev{api: here, secure: anywhere}).local())
	require.False(t, (&dev{api: anywhere, secure: here}).local())
}
