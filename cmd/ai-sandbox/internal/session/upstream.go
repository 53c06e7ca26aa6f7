// The proxy that a policy's gate goes through: where it is, and whether it answers.

package session

import (
	"bufio"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"ai-sandbox/cmd/ai-sandbox/internal/session/store"
	"ai-sandbox/gate"
	"ai-sandbox/policy"
)

// upstreamTime bounds looking the proxy up, and asking it.
const upstreamTime = 15 * time.Second

// upstream is a policy's proxy as a gate takes it, or nil. Its name is looked up here,
// once: the gate keeps to those addresses.
func (m *Manager) upstream(ctx context.Context, n policy.Net) (*gate.Upstream, error) {
	if n.Upstream == nil {
		return nil, nil
	}
	u := &gate.Upstream{Upstream: *n.Upstream, Auth: m.UpstreamAuth}
	if u.Credentials && n.GateName != "" && u.Auth == (policy.Secret{}) {
		data, err := os.ReadFile(m.gateAuth(n.GateName))
		if err != nil {
			return nil, fmt.Errorf("read what gate %s shows to its proxy (make it anew if that is gone): %w", n.GateName, err)
		}
		u.Auth = policy.NewSecret(policy.UpstreamAuth, string(data))
	}
	if a, ok := u.Addr(); ok {
		u.Addrs = []netip.Addr{a}
	} else {
		ctx, cancel := context.WithTimeout(ctx, upstreamTime)
		defer cancel()
		all, err := net.DefaultResolver.LookupNetIP(ctx, "ip", u.Host)
		if err != nil {
			return nil, fmt.Errorf("look up upstream_proxy %s (correct it, or see whether the network with its name is there): %w", u.URL(), err)
		}
		for _, a := range all {
			if a = a.Unmap(); a.Zone() == "" {
				u.Addrs = append(u.Addrs, a)
			}
		}
	}
	if err := u.Check(); err != nil {
		return nil, fmt.Errorf("use upstream_proxy %s: %w", u.URL(), err)
	}
	return u, nil
}

// upstreamOf is the proxy that a named gate was made with, or nil.
func upstreamOf(g store.Record) (*policy.Upstream, error) {
	if g.Upstream == "" {
		return nil, nil
	}
	u, err := policy.ParseUpstream(g.Upstream)
	if err != nil {
		return nil, fmt.Errorf("read the record of gate %s: %w", g.ID, err)
	}
	u.Credentials = g.UpstreamAuth
	return &u, nil
}

// gateAuth is where a named gate keeps what it shows to its proxy, for the sessions that
// share it. No sandbox has the directory.
func (m *Manager) gateAuth(name string) string {
	return filepath.Join(m.StateDir, "gates", name, "upstream-auth")
}

// keepAuth writes that down; it goes with the gate.
func (m *Manager) keepAuth(name string) error {
	if m.UpstreamAuth == (policy.Secret{}) {
		return nil
	}
	if err := os.WriteFile(m.gateAuth(name), []byte(m.UpstreamAuth.Reveal()), 0o600); err != nil {
		return fmt.Errorf("keep what gate %s shows to its proxy: %w", name, err)
	}
	return nil
}

// ErrUpstreamAuth says that the proxy does not take the credentials.
var ErrUpstreamAuth = errors.New("it refuses the credentials of upstream_auth_file, or wants some (407)")

// AskUpstream tells whether a policy's proxy answers, and takes the credentials: it is
// asked for a tunnel to a name that no host has (RFC 6761, section 6.4). answer is what is
// wrong with that, which refuses no run; err is what refuses one.
func (m *Manager) AskUpstream(ctx context.Context, n policy.Net) (answer, err error) {
	u, err := m.upstream(ctx, n)
	if err != nil || u == nil {
		return nil, err
	}
	return askUpstream(ctx, u), nil
}

// tryUpstream asks the proxy beside a start, which does not wait for it.
func (r *run) tryUpstream(ctx context.Context, u *gate.Upstream) {
	if u == nil {
		return
	}
	ctx = context.WithoutCancel(ctx)
	go func() { r.upstream <- askUpstream(ctx, u) }()
}

// tellUpstream says what is wrong with the proxy, as far as that is known by now.
func (r *run) tellUpstream() {
	select {
	case err := <-r.upstream:
		if err != nil {
			r.m.Say("upstream_proxy %s: %v; nothing can be reached through it", r.req.Policy.Net.Upstream.URL(), err)
		}
	default:
	}
}

func askUpstream(ctx context.Context, u *gate.Upstream) error {
	ctx, cancel := context.WithTimeout(ctx, upstreamTime)
	defer cancel()
	var conn net.Conn
	var err error
	for _, a := range u.Addrs {
		if conn, err = (&net.Dialer{}).DialContext(ctx, "tcp", net.JoinHostPort(a.String(), strconv.Itoa(int(u.Port)))); err == nil {
			break
		}
	}
	if err != nil {
		return fmt.Errorf("it does not answer: %w", err)
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	request := "CONNECT " + gate.ReadyHost + ":443 HTTP/1.1\r\nHost: " + gate.ReadyHost + ":443\r\n"
	if u.Credentials {
		request += "Proxy-Authorization: Basic " + base64.StdEncoding.EncodeToString([]byte(u.Auth.Reveal())) + "\r\n"
	}
	if _, err := io.WriteString(conn, request+"\r\n"); err != nil {
		return fmt.Errorf("it does not answer: %w", err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(io.LimitReader(conn, 64<<10)), &http.Request{Method: http.MethodConnect})
	switch {
	case err != nil:
		return errors.New("it does not answer as an HTTP proxy does")
	case resp.StatusCode == http.StatusProxyAuthRequired:
		return ErrUpstreamAuth
	}
	return nil
}
