package frontend

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
)

// requestKey identifies one call of a client across its retries. call is the
// client's own id of it, unique within the session.
func requestKey(session, tool, call string, arguments []byte) string {
	h := sha256.New()
	for _, part := range [][]byte{[]byte(session), []byte(tool), []byte(call), arguments} {
		var size [8]byte
		binary.BigEndian.PutUint64(size[:], uint64(len(part)))
		h.Write(size[:])
		h.Write(part)
	}
	return hex.EncodeToString(h.Sum(nil))
}
