package jobs

import "context"

// sessionSetting is the prefix of the settings that hold the session of a
// client's process.
const sessionSetting = "session/"

// SetSession records which conversation a client's process is in now. An empty
// client or session changes nothing.
func (s *Supervisor) SetSession(ctx context.Context, client, session string) error {
	if client == "" || session == "" {
		return nil
	}
	_, err := s.store.SetSetting(ctx, sessionSetting+client, session, false)
	return err
}

// Session returns the conversation that a client's process is in: the one that
// was recorded last, else the one that its front end names.
func (s *Supervisor) Session(ctx context.Context, client, named string) (string, error) {
	if client == "" {
		return named, nil
	}
	recorded, err := s.store.Setting(ctx, sessionSetting+client)
	if err != nil || recorded == "" {
		return named, err
	}
	return recorded, nil
}
