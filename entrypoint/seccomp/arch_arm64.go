// What is particular to arm64.

package seccomp

import "golang.org/x/sys/unix"

const (
	auditArch        = unix.AUDIT_ARCH_AARCH64
	sysKexecFileLoad = unix.SYS_KEXEC_FILE_LOAD
	x32Bit           = 0 // no such ABI
)

// No such calls.
func legacyModes() []legacyMode { return nil }
