package podman

import (
	"strings"
	"testing"
	"time"

	"ai-sandbox/cmd/ai-sandbox/internal/backend"
)

// The quadlet says all that makes the gate's container what it is; what podman makes of
// it is seen on the real thing.
func TestQuadlet(t *testing.T) {
	g := backend.Gate{Name: "aisb-gate-work", GateName: "work", Image: "0a1b", ConfigDir: "/s/gates/work/gate-0/conf", LogDir: "/s/gates/work/gate-0/log", Idle: time.Hour, Unit: true}
	text, err := Quadlet(g)
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{
		"[Quadlet]", "DefaultDependencies=false", "Image=0a1b", "Pull=never", "ReadOnly=true", "ReadOnlyTmpfs=false", "NoNewPrivileges=true", "DropCapability=all", "User=1000", "Group=1000", "UserNS=keep-id:uid=1000,gid=1000",
		"Entrypoint=/usr/libexec/aisb-entrypoint", "Exec=gate --detached --idle 3600 /etc/aisb/gate/peek.conf /etc/aisb/gate/front.conf", "PodmanArgs=--http-proxy=false",
		"Volume=/s/gates/work/gate-0/conf:/etc/aisb/gate:rprivate,nosuid,nodev,ro,z,bind",
		"Volume=/s/gates/work/gate-0/log:/var/log/aisb:rprivate,nosuid,nodev,rw,z,bind",
		"Restart=on-failure", "RestartPreventExitStatus=75", "StartLimitIntervalSec=300", "StartLimitBurst=5", "WantedBy=default.target",
	} {
		if !strings.Contains("\n"+text, "\n"+line+"\n") {
			t.Errorf("no line %q in\n%s", line, text)
		}
	}
	for _, dir := range []string{"/a b", "/a%h", "/a,ro", "/a\nExecStartPre=/x", "/a:b", `/a"`, "/ä"} {
		g.LogDir = dir
		if text, err := Quadlet(g); err == nil {
			t.Errorf("%q: %s", dir, text)
		}
	}
}
