package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestDevKeepsItsCertificateUntilItEndsSoon(t *testing.T) {
	t.Parallel()
	now := time.Now()
	d := devTLS{filepath.Join(t.TempDir(), "tls")}
	prepared := func(at time.Time) string {
		require.NoError(t, d.prepare(at))
		for file, mode := range map[string]os.FileMode{d.files().TLSKey: 0o600, d.files().TLSCert: 0o644} {
			info, err := os.Stat(file)
			require.NoError(t, err)
			require.Equal(t, mode, info.Mode().Perm(), file)
		}
		return contentOf(t, d.files().TLSCert)
	}
	first := prepared(now)
	require.Equal(t, first, prepared(now.Add(devCertificateLasts-devRenewBefore-time.Minute)))
	renewed := prepared(now.Add(devCertificateLasts - devRenewBefore + time.Minute))
	require.NotEqual(t, first, renewed)
	require.NoError(t, os.Remove(d.files().TLSKey))
	remade := prepared(now)
	require.NotEqual(t, renewed, remade)
	require.NoError(t, os.WriteFile(d.files().TLSKey, []byte("lost"), 0o600))
	require.NotEqual(t, remade, prepared(now))
}

func contentOf(t *testing.T, file string) string {
	t.Helper()
	raw, err := os.ReadFile(file)
	require.NoError(t, err)
	return string(raw)
}

// A client that has the key of dev's certificate can sign no certificate that others accept.
func TestDevsCertificateSignsNoOther(t *testing.T) {
	t.Parallel()
	d := devTLS{filepath.Join(t.TempDir(), "tls")}
	require.NoError(t, d.prepare(time.Now()))
	own, err := tls.LoadX509KeyPair(d.files().TLSCert, d.files().TLSKey)
	require.NoError(t, err)
	roots := x509.NewCertPool()
	roots.AddCert(own.Leaf)
	for _, template := range []*x509.Certificate{
		{DNSNames: []string{"example.com"}},
		{DNSNames: []string{"localhost"}},
		{IPAddresses: []net.IP{net.IPv4(10, 0, 0, 1)}},
	} {
		template.NotAfter = time.Now().Add(time.Hour)
		template.SerialNumber = big.NewInt(1)
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		require.NoError(t, err)
		signed, err := x509.CreateCertificate(rand.Reader, template, own.Leaf, key.Public(), own.PrivateKey)
		require.NoError(t, err)
		stolen, err := x509.ParseCertificate(signed)
		require.NoError(t, err)
		_, err = stolen.Verify(x509.VerifyOptions{Roots: roots})
		require.ErrorContains(t, err, "x509: ")
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
