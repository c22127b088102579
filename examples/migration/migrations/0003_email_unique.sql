CREATE UNIQUE INDEX customers_email ON customers (email);
