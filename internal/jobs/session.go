package jobs

import "context"

// sessionSetting is the prefix of the settings that hold a session's new name.
const sessionSetting = "session/"

// Rename records that the conversation which front ends still call alias is
// now another one. Empty or equal names change nothing.
func (s *Supervisor) Rename(ctx context.Context, alias, current string) error {
	if alias == "" || current == "" || alias == current {
		return nil
	}
	_, err := s.store.SetSetting(ctx, sessionSetting+alias, current, false)
	return err
}

// CurrentSession returns what the conversation that a front end calls session
// is called now.
func (s *Supervisor) CurrentSession(ctx context.Context, session string) (string, error) {
	if session == "" {
		return "", nil
	}
	now, err := s.store.Setting(ctx, sessionSetting+session)
	if err != nil || now == "" {
		return session, err
	}
	return now, nil
}
