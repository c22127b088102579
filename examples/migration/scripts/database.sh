#!/bin/sh
# Reads SQL and carries it out. Put the client of your database here: sqlite3
# app.db, psql "$DATABASE_URL", and so on. This one only writes down what it got.
exec cat >>app.db
