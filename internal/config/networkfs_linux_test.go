package config

import "testing"

func TestNetworkFileSystemsAreKnownByTheirNumbers(t *testing.T) {
	for magic, want := range map[uint32]string{
		0x6969: "NFS", 0xFE534D42: "SMB", 0xFF534D42: "SMB", 0x517B: "SMB", 0x5346414F: "AFS",
		0xEF53: "", 0x9123683E: "", 0x01021994: "", 0x794c7630: "", // ext4, btrfs, tmpfs, overlay
	} {
		if got := networkKind(magic); got != want {
			t.Errorf("%#x: %q, want %q", magic, got, want)
		}
	}
	if kind, err := networkFS(t.TempDir()); err != nil || kind != "" {
		t.Errorf("here: %q, %v", kind, err)
	}
}
